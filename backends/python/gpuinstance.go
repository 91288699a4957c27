package python

import (
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

const forceParam = config.AnyPlaceParam

// inputsStay returns the opposite of the parameter FORCE_CPU_ONLY_INPUT_TENSORS. Its error begins as Triton's.
func inputsStay(s *backends.Settings) (bool, error) {
	switch v := s.Param(forceParam); v {
	case "", "yes":
		return false, nil
	case "no":
		return true, nil
	default:
		return false, status.Errorf(status.InvalidArg, "Incorrect value for %s: '%s', expected 'yes' or 'no'", forceParam, v)
	}
}

var _ backends.AnyPlaceInstance = (*instance)(nil)

// InputsStay implements backends.AnyPlaceInstance. Memory of simulated devices cannot be passed to a worker.
func (x *instance) InputsStay() bool {
	if !x.m.inputsStay {
		return false
	}
	for _, at := range x.m.b.places.Devices() {
		if x.m.b.gpuAt(at) == nil {
			return false
		}
	}
	return true
}

// StreamAt implements backends.AnyPlaceInstance.
func (x *instance) StreamAt(at tensor.Place) (tensor.Stream, error) {
	x.streamsMu.Lock()
	defer x.streamsMu.Unlock()
	if i := slices.IndexFunc(x.streams, func(s tensor.Stream) bool { return s.Place() == at }); i >= 0 {
		return x.streams[i], nil
	}
	var d tensor.Accelerator
	if x.m.b.places != nil {
		d = x.m.b.places.Device(at)
	}
	if d == nil {
		return nil, status.Reasonf(status.RuntimeMissing, "model '%s': no device at %s", x.m.sig.Model, at)
	}
	s, err := d.NewStream("model '" + x.m.sig.Model + "'")
	if err == nil {
		x.streams = append(x.streams, s)
	}
	return s, err
}

func (x *instance) closeStreams() {
	x.streamsMu.Lock()
	defer x.streamsMu.Unlock()
	for _, s := range x.streams {
		if err := s.Close(); err != nil {
			x.m.log.Warn("closing a stream of a python model failed", slog.String("instance", x.name), slog.String("error", err.Error()))
		}
	}
	x.streams = nil
}

// shareInputs copies the inputs at GPUs to regions that the worker maps, one for each GPU, and waits for the copies: the worker may
// use them in any stream.
func (x *instance) shareInputs(b *backends.Batch) error {
	x.shared = x.shared[:0]
	some := false
	for i := range b.In {
		x.cursors[i].gpu = 0
		some = some || atGPU(&b.In[i])
	}
	if !some {
		return nil
	}
	err := x.copyToRegions(b)
	if err != nil {
		x.unshareInputs(false)
		return status.Prefixf(err, "model '%s': ", x.m.sig.Model)
	}
	return nil
}

func (x *instance) copyToRegions(b *backends.Batch) error {
	for i := range b.In {
		if !atGPU(&b.In[i]) || x.cursors[i].gpu != 0 {
			continue
		}
		at := b.In[i].Buf.Place()
		s, err := x.StreamAt(at)
		if err != nil {
			return err
		}
		n := 0
		for k := i; k < len(b.In); k++ {
			if t := &b.In[k]; atGPU(t) && t.Buf.Place() == at {
				n += gpuAligned(t.Len)
			}
		}
		r, err := x.w.gpu.lend(at, n)
		if err != nil {
			return err
		}
		x.shared = append(x.shared, r)
		if err := x.copyToRegion(b, i, r, s); err != nil {
			return err
		}
	}
	for _, r := range x.shared {
		s, err := x.StreamAt(r.buf.Place())
		if err == nil {
			err = s.Record().Wait()
		}
		if err == nil {
			err = x.w.gpu.tell(r, x.w.commands)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyToRegion copies the inputs from index first on that are at the region's device.
func (x *instance) copyToRegion(b *backends.Batch, first int, r *gpuRegion, s tensor.Stream) error {
	off := 0
	for k := first; k < len(b.In); k++ {
		t := &b.In[k]
		if !atGPU(t) || t.Buf.Place() != r.buf.Place() {
			continue
		}
		if err := r.take(off, t, s); err != nil {
			return err
		}
		if b.Copied != nil {
			b.Copied(x.m.sig.Inputs[k].Name, s.Place(), s.Place(), t.Len)
		}
		x.cursors[k] = cursor{off: off, gpu: r.id}
		off += gpuAligned(t.Len)
	}
	return nil
}

// gpuAligned returns the next offset at which a tensor in a GPU region may begin.
func gpuAligned(n int) int { return (n + gpuAlign - 1) &^ (gpuAlign - 1) }

// unshareInputs ends the use of the regions of the inputs. Those that the worker retains it gives back itself.
func (x *instance) unshareInputs(retained bool) {
	for _, r := range x.shared {
		if !retained {
			x.w.gpu.giveBack(r.id)
		}
	}
	x.shared = x.shared[:0]
}

// takeRegions ends the worker's use of the regions with its outputs.
func (x *instance) takeRegions() {
	x.w.gpu.giveBackAll(x.regions)
	x.regions = x.regions[:0]
}

// appendRegions appends the GPU regions of tensors to a list.
func appendRegions(list []uint32, parts []part) []uint32 {
	for i := range parts {
		if id := parts[i].gpu; id != 0 && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// giveBackAll is giveBack for several regions.
func (g *gpuRegions) giveBackAll(list []uint32) {
	for _, id := range list {
		g.giveBack(id)
	}
}
