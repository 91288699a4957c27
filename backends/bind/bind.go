package bind

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Port is one input or output of a model file. R is what the backend keeps with it.
type Port[R any] struct {
	Name  string
	DType tensor.DType
	// Shape has the batch dimension, where there is one; -1 is any extent.
	Shape []int64
	// AnyRank says that the file leaves even the number of dimensions open.
	AnyRank bool
	Native  R
}

// ShapeText is the shape for a person.
func (p *Port[R]) ShapeText() string {
	if p.AnyRank {
		return "any"
	}
	return tensor.Of(p.Shape...).String()
}

// Model is what a file declares, and what its runtime allows.
type Model[R any] struct {
	Ins, Outs []Port[R]
	// Alias finds a port by a name that Ins and Outs do not have; nil where none has two.
	FindAlias func(name string, output bool) (Port[R], bool)
	// Whole says that tensors over a whole batch are served: ragged and computed inputs
	// and scattered outputs. Otherwise they are not marked so, and refused above.
	WholeBatch bool
	// LooseOutputs says that the file often does not know what its outputs turn out to
	// be: the configuration may then be narrower than the file, or wider.
	LooseOutputs bool
	// FixedBatch says that the first dimension may be of one size, which the backend
	// checks.
	FixedBatch bool
}

// Bound is one port of the file as the signature uses it.
type Bound[R any] struct {
	Port[R]
	// Reshape makes the other side's shape out of this side's: the model's out of the
	// request's for an input, the response's out of the model's for an output. nil where
	// both are the same.
	Reshape Extents
}

// Binding ties the ports of a signature to those of the file, in the signature's order.
type Binding[R any] struct {
	Sig     *config.Signature
	In, Out []Bound[R]

	model *Model[R]
}

// declared is what config.pbtxt says about an input or output.
type declared interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// Bind checks the configuration against the file, and takes from the file what the configuration leaves out. maxBatch is
// what MaxBatch returned.
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

// inputs binds those that the configuration declares.
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

// outputs binds those that the configuration declares.
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

// batched returns dims with the batch dimension that requests carry.
func (b *Binding[R]) batched(dims []int64) []int64 {
	if b.Sig.MaxBatch > 0 {
		return append([]int64{-1}, dims...)
	}
	return dims
}

// Side is the word for an input or output in errors.
func Side(output bool) string {
	if output {
		return "output"
	}
	return "input"
}
