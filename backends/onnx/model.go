package onnx

import "C"

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port is an input or output of the model file.
type port = bind.Port[native]

// binding has the bound ports of a model.
type binding = bind.Binding[native]

// native is the backend's own data about a port.
type native struct {
	ort     C.int    // element type, by number of the runtime
	symbols []string // symbolic name of each dimension, or ""
	// known derives an output's shape from the inputs' shapes. It is nil when the shape is not known before a run.
	known []bind.Extent
}

// bound binds the configuration to the file.
func bound(cfg *modelconfig.ModelConfig, s *session, byDefault int) (*binding, error) {
	m := &bind.Model[native]{Ins: s.ins, Outs: s.outs, WholeBatch: true}
	maxBatch, err := m.MaxBatch(cfg, byDefault)
	if err != nil {
		return nil, err
	}
	b, err := bind.Bind(cfg, m, maxBatch)
	if err != nil {
		return nil, err
	}
	foresee(b)
	return b, nil
}

// foresee sets known for the outputs whose dimensions are all fixed, the batch, or named like a dimension of an input. For example,
// input [batch, seq] and output [batch, seq, 768].
func foresee(b *binding) {
	byName := map[string]bind.Extent{}
	for i, p := range slices.Backward(b.In) {
		for k, name := range p.Native.symbols {
			if name != "" && p.Shape[k] == -1 {
				byName[name] = bind.Extent{From: i, Axis: k}
			}
		}
	}
	rows := -1 // an input whose first dimension is the batch
	if b.Sig.MaxBatch > 0 {
		rows = slices.IndexFunc(b.Sig.Inputs, func(p config.Port) bool { return !p.Unbatched })
	}
	for i := range b.Out {
		// The runtime does not write to the given memory of an output that is an input passed through.
		handed := slices.ContainsFunc(b.In, func(p bind.Bound[native]) bool { return p.Name == b.Out[i].Name })
		// The size of strings is not known before the run.
		if !handed && !b.Sig.Outputs[i].Unbatched && b.Out[i].DType != tensor.Bytes {
			b.Out[i].Native.known = known(&b.Out[i].Port, byName, rows)
		}
	}
}

// known returns the derived shape of an output, or nil when a dimension is not known.
func known(p *port, byName map[string]bind.Extent, rows int) []bind.Extent {
	out := make([]bind.Extent, 0, len(p.Shape))
	for k, d := range p.Shape {
		e, named := byName[p.Native.symbols[k]]
		switch {
		case d != -1:
			e = bind.Extent{N: d, Axis: -1}
		case named:
		case k == 0 && rows >= 0:
			e = bind.Extent{From: rows} // the first dimension of every tensor is the batch
		default:
			return nil
		}
		out = append(out, e)
	}
	return out
}

// placedSession is the session for one place.
type placedSession struct {
	*session
	at tensor.Place
}

// model is one loaded model file.
type model struct {
	*binding
	sessions []placedSession // at least one
	shrink   string
	threads  int
	places   *tensor.Places
	// unsure is set when the symbolic names of dimensions proved wrong. The runtime then allocates all outputs.
	unsure atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// NewInstance returns an executor on the host, or at a GPU of the configuration.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	i := slices.IndexFunc(m.sessions, func(s placedSession) bool { return s.at == at })
	if i < 0 {
		return nil, m.Errorf(status.Unsupported, "the configuration has no instance group for %s", at)
	}
	x, err := newInstance(m, m.sessions[i].session)
	if d := m.device(at); err == nil && d != nil {
		return x.atDevice(d, at)
	}
	return x, err
}

// Close unloads the model.
func (m *model) Close() error {
	for _, s := range m.sessions {
		s.close()
	}
	return nil
}

// placesOf returns the distinct places of the configured instances: the host, and the GPUs of groups of KIND_GPU.
func placesOf(cfg *modelconfig.ModelConfig) (all []tensor.Place) {
	add := func(at tensor.Place) {
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
			add(tensor.Place{})
			continue
		}
		for _, id := range g.GetGpus() {
			add(tensor.Place{Kind: tensor.Device, ID: int16(id)})
		}
	}
	if len(all) == 0 {
		add(tensor.Place{})
	}
	return all
}

// placedModel is a model whose tensors are at devices.
type placedModel struct{ *model }

var _ backends.DeviceModel = placedModel{}

// Places implements backends.DeviceModel.
func (m placedModel) Places() (all []tensor.Place) {
	for _, s := range m.sessions {
		all = append(all, s.at)
	}
	return all
}

// placed returns a placedModel when the server manages the memory of every GPU of the model. Otherwise it returns the model: its
// tensors are on the host, and the runtime copies them.
func (m *model) placed() backends.Model {
	for _, s := range m.sessions {
		if m.device(s.at) == nil {
			return m
		}
	}
	return placedModel{m}
}

func (m *model) device(at tensor.Place) tensor.Accelerator {
	if m.places == nil || at.Kind != tensor.Device {
		return nil
	}
	return m.places.Device(at)
}

// placedInstance is an instance whose tensors are at a device.
type placedInstance struct{ *instance }

var _ backends.DeviceInstance = placedInstance{}

// Stream implements backends.DeviceInstance.
func (x placedInstance) Stream() tensor.Stream { return x.stream }

// Close closes the stream and the instance.
func (x placedInstance) Close() error { return errors.Join(x.stream.Close(), x.instance.Close()) }

// atDevice makes the runs of an instance use a binding, which allocates outputs at the device.
func (x *instance) atDevice(d tensor.Accelerator, at tensor.Place) (backends.Instance, error) {
	err := x.bindRuns(int(at.ID))
	if err == nil {
		x.at = at
		x.stream, err = d.NewStream(x.m.Sig.Model)
	}
	if err != nil {
		_ = x.Close()
		return nil, status.Prefixf(err, "model '%s': ", x.m.Sig.Model)
	}
	return placedInstance{x}, nil
}
