//go:build cgo

package tensorrt

import (
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// binding has the bound inputs and outputs of a model.
type (
	binding = bind.Binding[native]
	bound   = bind.Bound[native]
)

// bind binds the configuration to the plan, for the profiles of its instances.
func (e *engine) bind(s *backends.Settings, profiles []int) (*binding, error) {
	cfg := s.Config
	most := 0
	for _, p := range profiles {
		most = max(most, e.maxBatch(p))
	}
	maxBatch, err := e.batchOf(s, most)
	if err != nil {
		return nil, err
	}
	m := &bind.Model[native]{WholeBatch: true, FixedBatch: true, LooseOutputs: true}
	if m.Ins, err = batchedPorts(e.ins, maxBatch); err == nil {
		m.Outs, err = batchedPorts(e.outs, maxBatch)
	}
	if err != nil {
		return nil, err
	}
	b, err := bind.Bind(cfg, m, maxBatch)
	if err != nil {
		return nil, err
	}
	for i := range b.In {
		b.Sig.Inputs[i].ShapeTensor = b.In[i].Native.shape
	}
	for i := range b.Out {
		b.Sig.Outputs[i].ShapeTensor = b.Out[i].Native.shape
	}
	return b, checkShapeTensors(s, b)
}

// batchedPorts returns the ports as bind compares them. In a model that batches, the first value of a shape tensor is the batch, which
// requests do not carry: [3] becomes a batch of 2 values.
func batchedPorts(list []port, maxBatch int) ([]port, error) {
	list = slices.Clone(list)
	for i := range list {
		p := &list[i]
		if maxBatch == 0 || !p.Native.shape {
			continue
		}
		if len(p.Shape) == 0 || p.Shape[0] < 2 {
			return nil, status.Errorf(status.Unsupported, "unsupported: shape tensor '%s' has shape %s, of which the batch is the only value: set max_batch_size: 0", p.Name, tensor.Of(p.Shape...))
		}
		p.Shape = []int64{-1, p.Shape[0] - 1}
	}
	return list, nil
}

// batchOf returns max_batch_size. most is the largest batch of the plan's profiles. As Triton's auto-completion, it takes the plan's
// unless the dims of the configuration are the plan's whole shapes.
func (e *engine) batchOf(s *backends.Settings, most int) (int, error) {
	cfg := s.Config
	size := int(cfg.GetMaxBatchSize())
	if size > most {
		return 0, config.WithFix(config.Errorf(config.Mismatch, "max_batch_size",
			"autofill failed for model '%s': configuration specified max-batch %d but TensorRT engine only supports max-batch %d", s.Model, size, most),
			"lower max_batch_size, list the profile with the larger batch in instance_group.profile, or build the plan with a larger maximum shape")
	}
	if size > 0 || s.Strict || most == 0 {
		return size, nil
	}
	shaped, hint, err := e.batchHint(cfg)
	switch {
	case err != nil:
		return 0, err
	case shaped && !hint:
		if s.Log != nil {
			s.Log.Warn("the dims of the configuration are the whole shapes of the plan: the model does not batch", slog.String("model", s.Model))
		}
		return 0, nil
	}
	return most, nil
}

// batchHint reports whether the configuration declares shapes, and whether they lack the batch dimension of the plan.
func (e *engine) batchHint(cfg *modelconfig.ModelConfig) (shaped, hint bool, err error) {
	look := func(name string, dims []int64, reshape *modelconfig.ModelTensorReshape, ports []port) {
		if reshape != nil {
			dims = reshape.GetShape()
		}
		i := slices.IndexFunc(ports, func(p port) bool { return p.Name == name })
		if i < 0 || len(dims) == 0 && reshape == nil || err != nil {
			return
		}
		n := &ports[i].Native
		batched := len(n.dims) == len(dims)+1
		if n.shape {
			batched = len(n.dims) == 1 && len(dims) == 1 && n.dims[0] == dims[0]+1
		}
		if shaped && batched != hint {
			err = status.Errorf(status.InvalidArg,
				"unable to autofill for '%s', model tensor configurations are contradicting each other in terms of whether batching is supported", cfg.GetName())
		}
		shaped, hint = true, batched
	}
	for _, io := range cfg.GetInput() {
		if io.GetAllowRaggedBatch() {
			return true, true, nil
		}
		look(io.GetName(), io.GetDims(), io.GetReshape(), e.ins)
	}
	for _, io := range cfg.GetOutput() {
		look(io.GetName(), io.GetDims(), io.GetReshape(), e.outs)
	}
	return shaped, hint, err
}

// checkShapeTensors compares is_shape_tensor with the plan. Without --disable-auto-complete-config it may be left out.
func checkShapeTensors(s *backends.Settings, b *binding) error {
	check := func(kind, name string, marked, shape bool) error {
		switch {
		case marked && !shape:
			return status.Errorf(status.InvalidArg, "%s '%s' for model '%s' is incorrectly marked as a shape tensor in the model configuration.", kind, name, s.Model)
		case shape && !marked && s.Strict:
			return status.Errorf(status.InvalidArg, "%s '%s' for model '%s' is a shape tensor but the model configuration doesn't mark it as a shape tensor.", kind, name, s.Model)
		}
		return nil
	}
	for i, io := range s.Config.GetInput() {
		if err := check("input", io.GetName(), io.GetIsShapeTensor(), b.In[i].Native.shape); err != nil {
			return err
		}
	}
	for i, io := range s.Config.GetOutput() {
		if err := check("output", io.GetName(), io.GetIsShapeTensor(), b.Out[i].Native.shape); err != nil {
			return err
		}
	}
	return nil
}
