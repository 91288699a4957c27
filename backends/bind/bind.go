package bind

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
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

// ShapeText returns the shape for messages.
func (p *Port[R]) ShapeText() string {
	if p.AnyRank {
		return "any"
	}
	return tensor.Of(p.Shape...).String()
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

// declared is an input or output of config.pbtxt.
type declared interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

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
	if err := b.inputs(cfg); err != nil {
		return nil, err
	}
	if err := b.outputs(cfg); err != nil {
		return nil, err
	}
	if len(b.In) == 0 {
		b.Sig.Inputs, b.In = b.complete(ins, false)
	}
	if err := b.computed(cfg); err != nil {
		return nil, err
	}
	if len(b.Out) == 0 {
		b.Sig.Outputs, b.Out = b.complete(m.Outs, true)
	}
	return b, nil
}

// inputs binds the declared inputs.
func (b *Binding[R]) inputs(cfg *modelconfig.ModelConfig) error {
	for i, io := range cfg.GetInput() {
		field := fmt.Sprintf("input[%d]", i)
		if b.model.WholeBatch && io.GetAllowRaggedBatch() {
			if err := b.ragged(field, io); err != nil {
				return err
			}
			continue
		}
		p, bound, err := b.match(field, io, false)
		if err != nil {
			return err
		}
		p.Optional = io.GetOptional()
		b.Sig.Inputs, b.In = append(b.Sig.Inputs, p), append(b.In, bound)
	}
	return nil
}

// outputs binds the declared outputs.
func (b *Binding[R]) outputs(cfg *modelconfig.ModelConfig) error {
	for i, io := range cfg.GetOutput() {
		field := fmt.Sprintf("output[%d]", i)
		if b.model.WholeBatch && scattered(cfg, io.GetName()) {
			if err := b.scatter(field, io); err != nil {
				return err
			}
			continue
		}
		p, bound, err := b.match(field, io, true)
		if err != nil {
			return err
		}
		b.Sig.Outputs, b.Out = append(b.Sig.Outputs, p), append(b.Out, bound)
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

// Side returns "input" or "output".
func Side(output bool) string {
	if output {
		return "output"
	}
	return "input"
}
