// Package bind has what the backends of frameworks share (onnx, openvino, tensorflow, pytorch). Above all it binds the inputs and
// outputs of a configuration to those of a model file: names, types, dimensions and the batch dimension. Ports that the
// configuration leaves out are taken from the file (Triton's auto-complete). Contradictions are errors with Triton's texts.
//
// For example, a file with input x of shape [-1,3] and a configuration with max_batch_size 8 and dims [ 3 ] agree: the first
// dimension is the batch. With dims [ 4 ] the model is refused.
//
//	bind.go     the ports of a file and of a signature, and Bind, which also completes what the configuration leaves out
//	match.go    one declared port against the file's; shapes that depend on other shapes
//	settings.go settings of --backend-config, parameters of config.pbtxt, model files, element types of a runtime
//	execute.go  executions: checks and errors, outputs in memory of the runtime, cancellation
package bind

import (
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Port is one input or output of a model file. R is the backend's own data about it.
type Port[R any] struct {
	Name  string
	DType tensor.DType
	// Shape includes the batch dimension. -1 is a variable dimension.
	Shape []int64
	// AnyRank is true when the file does not declare even the number of dimensions.
	AnyRank bool
	Native  R
}

// Model has the declarations of a file, and the abilities of its runtime.
type Model[R any] struct {
	Ins, Outs []Port[R]
	// FindAlias finds a port by an alternative name. Optional.
	FindAlias func(name string, output bool) (Port[R], bool)
	// WholeBatch is true when tensors over a whole batch are supported: ragged and computed inputs, and scattered outputs.
	// Otherwise such ports are not marked Whole, and the server refuses them.
	WholeBatch bool
	// LooseOutputs is true when the output shapes of the file are not reliable: the configuration may be narrower or wider.
	LooseOutputs bool
	// FixedBatch allows a first dimension of a fixed size, which the backend checks.
	FixedBatch bool
}

// MaxBatch returns the model's max_batch_size. When the configuration leaves out inputs or outputs and every first dimension of the
// file is variable, a max_batch_size of 0 becomes byDefault. A positive one is refused when the first dimensions are not variable.
func (m *Model[R]) MaxBatch(cfg *modelconfig.ModelConfig, byDefault int) (int, error) {
	size := int(cfg.GetMaxBatchSize())
	if len(cfg.GetInput()) > 0 && len(cfg.GetOutput()) > 0 {
		return size, nil
	}
	batches := !slices.ContainsFunc(slices.Concat(m.Ins, m.Outs), func(p Port[R]) bool { return len(p.Shape) == 0 || p.Shape[0] != -1 })
	switch {
	case size > 0 && !batches:
		return 0, status.Errorf(status.InvalidArg,
			"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", cfg.GetName())
	case size == 0 && batches:
		return byDefault, nil
	}
	return size, nil
}

// RequestInputs returns the file's inputs that requests have: all but the computed ones (batch_input).
func (m *Model[R]) RequestInputs(cfg *modelconfig.ModelConfig) []Port[R] {
	if !m.WholeBatch || len(cfg.GetBatchInput()) == 0 {
		return m.Ins
	}
	computed := config.SignatureOf(cfg).Computed
	return slices.DeleteFunc(slices.Clone(m.Ins), func(p Port[R]) bool {
		return slices.ContainsFunc(computed, func(c config.Computed) bool { return c.Name == p.Name })
	})
}

// Bound is a port of the file that is bound to a port of the signature.
type Bound[R any] struct {
	Port[R]
	// Reshape maps an input's request shape to the model's shape, or an output's model shape to the response's. It is nil when
	// both are the same.
	Reshape Extents
}

// Binding has the signature of a model and the bound ports, in the same order.
type Binding[R any] struct {
	Sig     *config.Signature
	In, Out []Bound[R]

	model *Model[R]
}

// Signature returns the signature, as backends.Model does.
func (b *Binding[R]) Signature() *config.Signature { return b.Sig }

// Bind checks the configuration against the file, and takes ports and properties that it leaves out from the file. maxBatch is the
// result of MaxBatch.
func Bind[R any](cfg *modelconfig.ModelConfig, m *Model[R], maxBatch int) (*Binding[R], error) {
	b := &Binding[R]{Sig: &config.Signature{Model: cfg.GetName(), MaxBatch: maxBatch}, model: m}
	ins := m.RequestInputs(cfg)
	if n := len(cfg.GetInput()); n > 0 && n != len(ins) {
		return nil, config.WithFix(config.Errorf(config.Mismatch, "input", "unable to load model '%s', configuration expects %d inputs, model provides %d: %s",
			b.Sig.Model, n+len(m.Ins)-len(ins), len(m.Ins), names(m.Ins)), "declare every input of the model, or none: they are taken from the file then")
	}
	cfg = b.fillGaps(cfg, ins)
	for i, io := range cfg.GetInput() {
		if err := b.declare(fmt.Sprintf("input[%d]", i), io, false, io.GetAllowRaggedBatch()); err != nil {
			return nil, err
		}
		b.Sig.Inputs[i].Optional = io.GetOptional()
	}
	for i, io := range cfg.GetOutput() {
		scattered := func(o *modelconfig.BatchOutput) bool { return slices.Contains(o.GetTargetName(), io.GetName()) }
		if err := b.declare(fmt.Sprintf("output[%d]", i), io, true, slices.ContainsFunc(cfg.GetBatchOutput(), scattered)); err != nil {
			return nil, err
		}
	}
	if len(b.In) == 0 {
		b.Sig.Inputs, b.In = b.complete(ins, false)
	}
	if len(b.Out) == 0 {
		b.Sig.Outputs, b.Out = b.complete(m.Outs, true)
	}
	return b, b.computed(cfg)
}

// declare binds a declared input or output; whole marks one over the whole batch: a ragged input, or an output that batch_output
// scatters. field is its path in the configuration, for errors.
func (b *Binding[R]) declare(field string, io declared, output, whole bool) error {
	d := tensor.DType(io.GetDataType())
	p, err := b.find(field, io.GetName(), d, output)
	port, bound := config.Port{Name: io.GetName(), DType: d, Dims: tensor.Of(-1), Unbatched: whole && b.model.WholeBatch}, Bound[R]{Port: p}
	switch {
	case err != nil:
	case !port.Unbatched:
		port.Dims, bound.Reshape, err = b.match(field, &p, io, output)
	case !output: // the elements of all requests, concatenated in one dimension
		err = b.spans("ragged input", &p, port.Dims)
	case p.AnyRank: // the dimensions of a scattered output are not checked: only the number of elements matters
		port.Dims = tensor.Of(b.batched(io.GetDims())...)
	default:
		port.Dims = tensor.Of(p.Shape...)
	}
	if output {
		b.Sig.Outputs, b.Out = append(b.Sig.Outputs, port), append(b.Out, bound)
	} else {
		b.Sig.Inputs, b.In = append(b.Sig.Inputs, port), append(b.In, bound)
	}
	return err
}

// computed adds the inputs of batch_input, which the server computes from the shapes of a batch. They come last.
func (b *Binding[R]) computed(cfg *modelconfig.ModelConfig) error {
	if !b.model.WholeBatch {
		return nil
	}
	for _, c := range config.SignatureOf(cfg).Computed {
		p, err := b.find("batch_input", c.Name, c.DType, false)
		if err == nil {
			err = b.spans("batch input", &p, c.Dims())
		}
		if err != nil {
			return err
		}
		b.Sig.Inputs = append(b.Sig.Inputs, config.Port{Name: p.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
		b.In = append(b.In, Bound[R]{Port: p})
	}
	return nil
}

// spans checks that the file's tensor has the given rank and a variable first dimension, which is not the batch.
func (b *Binding[R]) spans(what string, p *Port[R], dims tensor.Shape) error {
	if !p.AnyRank && (len(p.Shape) != dims.Rank() || p.Shape[0] != -1) {
		return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': the %s has shape %s over the batch, but shape expected by the model is %s",
			b.Sig.Model, p.Name, what, dims, tensor.Of(p.Shape...))
	}
	return nil
}

// batched returns dims with the batch dimension in front, if the model batches.
func (b *Binding[R]) batched(dims []int64) []int64 {
	if b.Sig.MaxBatch > 0 {
		return append([]int64{-1}, dims...)
	}
	return dims
}

// fillGaps returns the configuration with missing data types and dims of its ports taken from the file. A complete one is returned
// as it is.
func (b *Binding[R]) fillGaps(cfg *modelconfig.ModelConfig, ins []Port[R]) *modelconfig.ModelConfig {
	if len(config.CheckComplete(cfg)) == 0 {
		return cfg
	}
	// Bind refuses a tensor without a batch dimension in a model that batches later.
	unfit := func(p Port[R]) bool { return p.AnyRank || len(p.Shape) < len(b.batched(nil)) }
	sig := &config.Signature{}
	sig.Inputs, _ = b.complete(slices.DeleteFunc(slices.Clone(ins), unfit), false)
	sig.Outputs, _ = b.complete(slices.DeleteFunc(slices.Clone(b.model.Outs), unfit), true)
	return config.Complete(cfg, sig)
}

// complete returns signature ports for the file's ports. A port without dimensions becomes [1], and a port of any rank has no dims.
func (b *Binding[R]) complete(ports []Port[R], output bool) (sig []config.Port, bound []Bound[R]) {
	for _, p := range ports {
		dims := p.Shape[min(len(p.Shape), len(b.batched(nil))):]
		bp := Bound[R]{Port: p}
		if len(dims) == 0 && !p.AnyRank {
			dims = []int64{1}
			bp.Reshape = follow(b.batched(dims), p.Shape, output)
		}
		sig = append(sig, config.Port{Name: p.Name, DType: p.DType, Dims: tensor.Of(dims...)})
		bound = append(bound, bp)
	}
	return sig, bound
}

// Side returns "input" or "output".
func Side(output bool) string {
	if output {
		return "output"
	}
	return "input"
}
