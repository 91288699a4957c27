package pytorch

/*
#include "call.h"
*/
import "C"

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// binding has the declared tensors with their ScalarTypes.
type binding = bind.Binding[C.int32_t]

// boundPort is a declared tensor.
type boundPort = bind.Bound[C.int32_t]

// model is a loaded model file. Its instances share the weights unless ENABLE_WEIGHT_SHARING is false.
type model struct {
	*binding
	lib *library
	set *settings

	mu     sync.Mutex
	loaded *C.tt_torch_model // guarded by mu; nil once closed
	used   bool              // an instance uses the loaded weights; guarded by mu
}

var _ backends.ThreadedModel = (*model)(nil)

// load loads the file at path.
func (m *model) load(b *backend, s *backends.Settings, path string) error {
	err := boolean.Set(s.Config, m.set.targets())
	if err == nil {
		err = checkFile(path)
	}
	if err == nil {
		m.binding, err = portsOf(s.Config)
	}
	if err == nil {
		m.Sig.Model, m.Sig.Version = s.Model, s.Version
		err = b.lib.setup(m.set)
	}
	if err != nil {
		return err
	}
	if m.loaded, err = b.lib.load(path, b.device, s.Instances, m.set); err == nil {
		err = m.bind(isPackage(path), s.Log)
	}
	if err != nil {
		return status.Prefixf(err, "'%s': ", path)
	}
	return nil
}

// bind matches the declared tensors with the arguments and results of forward. It warns when tensors are matched by position, because
// their names do not match.
func (m *model) bind(aoti bool, to *slog.Logger) error {
	f := &forward{unknown: true}
	if !aoti {
		var err error
		if f, err = m.lib.describe(m.loaded); err != nil {
			return err
		}
	}
	in, err := f.inputs(m.In)
	if err != nil {
		return err
	}
	out, err := f.outputs(m.Out)
	if err != nil {
		return err
	}
	for side, o := range map[string]*order{"input": &in, "output": &out} {
		if to != nil && o.strict && len(o.names) > 1 {
			to.Warn("tensors are matched by the order of their declaration", slog.String("model", m.Sig.Model), slog.String("side", side))
		}
	}
	return m.lib.bind(m.loaded, &in, &out)
}

// portsOf returns the ports of a configuration, which must declare all of them: inputs, controls and states of sequences, inputs of
// batch_input, and outputs.
func portsOf(cfg *modelconfig.ModelConfig) (b *binding, err error) {
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return nil, status.Errorf(status.InvalidArg,
			"must specify at least one input and one output in its configuration: PyTorch files do not contain their types and shapes")
	}
	declared := config.SignatureOf(config.DeclareSequence(cfg)).AtModel()
	b = &binding{Sig: &config.Signature{MaxBatch: declared.MaxBatch}}
	for _, p := range declared.Inputs {
		port := config.Port{Name: p.Name, DType: p.DType, Dims: p.Dims, Optional: p.Optional, Unbatched: p.Unbatched}
		if p.Unbatched {
			port.Dims = tensor.Of(-1)
		}
		b.Sig.Inputs = append(b.Sig.Inputs, port)
	}
	for _, c := range declared.Computed {
		b.Sig.Inputs = append(b.Sig.Inputs, config.Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
	}
	for _, p := range declared.Outputs {
		b.Sig.Outputs = append(b.Sig.Outputs, config.Port{Name: p.Name, DType: p.DType, Dims: p.Dims})
	}
	if b.In, err = boundPorts(b.Sig.Inputs, b.Sig.MaxBatch, "input"); err == nil {
		b.Out, err = boundPorts(b.Sig.Outputs, b.Sig.MaxBatch, "output")
	}
	return b, err
}

func boundPorts(ports []config.Port, maxBatch int, side string) (list []boundPort, err error) {
	for i := range ports {
		p := &ports[i]
		n, ok := scalarOf(p.DType)
		if !ok {
			return nil, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", p.DType.ConfigName(), side, p.Name)
		}
		full := p.Dims
		if !p.Unbatched {
			full = p.FullDims(maxBatch)
		}
		if p.DType == tensor.Bytes && full.Rank() > 1 {
			return nil, status.Errorf(status.InvalidArg,
				"Triton only supports 1 dimensional List of String as %s for '%s': with a batch dimension its dims are [ 1 ] with reshape { shape: [ ] }, found shape %s",
				side, p.Name, full)
		}
		list = append(list, boundPort{Port: bind.Port[C.int32_t]{Name: p.Name, DType: p.DType, Shape: slices.Clone(full.Dims()), Native: n}})
	}
	return list, nil
}

// Threads implements backends.ThreadedModel. The number is a setting of the process.
func (m *model) Threads() int { return max(1, int(C.ttpt_threads(&m.lib.api))) }

// NewInstance returns an executor. Its tensors are on the host, whatever device the model runs on.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("pytorch", m.Sig.Model, at); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded == nil {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.Sig.Model)
	}
	use, own := m.loaded, (*C.tt_torch_model)(nil)
	if !m.set.shared && m.used {
		var why errorBuffer
		if own = C.ttpt_clone(&m.lib.api, m.loaded, &why[0]); own == nil {
			return nil, status.Prefixf(why.err(), "model '%s': ", m.Sig.Model)
		}
		use = own
	}
	m.used = true
	return newInstance(m, use, own)
}

// Close unloads the model.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lib.unload(m.loaded)
	m.loaded = nil
	return nil
}
