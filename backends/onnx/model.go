package onnx

import "C"

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/precision"
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

// model is one loaded model file.
type model struct {
	*binding
	lib        *library
	name, path string
	devices    *tensor.Places
	places     []tensor.Place // of the configured instances, at least one
	host       *session       // of the instances on the host; nil when there are none
	gpu        *gpuModel      // of the instances on GPUs; nil when there are none
	shrink     string
	threads    int
	// unsure is set when the symbolic names of dimensions proved wrong. The runtime then allocates all outputs.
	unsure atomic.Bool

	precision precision.Precision // see Precision
}

var _ backends.ThreadedModel = (*model)(nil)

// load opens the session of the host, and the first one of each GPU.
func (m *model) load(ctx context.Context, s *backends.Settings, st start) error {
	set, err := modelSettings(s.Config, s.Instances, st)
	if err != nil {
		return err
	}
	if err = m.precise(s, &set, precision.Machine(), runtime.GOARCH); err != nil {
		return err
	}
	m.shrink, m.threads, set.converted = set.shrink, set.threads(), s.Origin != ""
	host, device, err := accelerators(s.Config)
	if err == nil {
		err = m.lib.missing(host) // those of devices are checked when an instance needs them
	}
	if err == nil {
		set.libraries, err = libraries(s)
	}
	if err != nil {
		return err
	}
	for _, at := range m.places {
		if at.Kind == tensor.Device {
			err = m.loadGPU(ctx, at, &set, device)
		} else {
			one := set
			one.providers = host
			m.host, err = openSession(ctx, m.lib, m.path, &one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first returns an open session.
func (m *model) first() *session {
	if m.host != nil {
		return m.host
	}
	return m.gpu.spare[0].session
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// NewInstance returns an executor on the host, or at a GPU of the configuration.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	switch {
	case !slices.Contains(m.places, at):
		return nil, m.Errorf(status.Unsupported, "the configuration has no instance group for %s", at)
	case at.Kind == tensor.Device:
		return m.newGPUInstance(ctx, at)
	}
	x, err := newInstance(m, m.host)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Close unloads the model. Instances must be closed.
func (m *model) Close() error {
	if m.host != nil {
		m.host.close()
	}
	if m.gpu != nil {
		return m.gpu.close()
	}
	return nil
}
