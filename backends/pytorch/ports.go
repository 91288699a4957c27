package pytorch

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// boundPort is a declared tensor with its PyTorch type.
type boundPort struct {
	name   string
	dtype  tensor.DType
	scalar int32 // value of ScalarType
	// dims are the declared dimensions with the batch dimension. -1 is a variable dimension.
	dims []int64
}

// declaredIO is an input or output of config.pbtxt.
type declaredIO interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// ports has a signature and its bound ports.
type ports struct {
	sig     *config.Signature
	in, out []boundPort
}

// portsOf returns the signature of a configuration, which must declare all ports: inputs, those of batch_input, controls and states of
// sequences, and outputs.
func portsOf(cfg *modelconfig.ModelConfig) (*ports, error) {
	p := &ports{sig: &config.Signature{MaxBatch: int(cfg.GetMaxBatchSize())}}
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return nil, status.Errorf(status.InvalidArg,
			"must specify at least one input and one output in its configuration: PyTorch files do not contain their types and shapes")
	}
	for _, io := range cfg.GetInput() {
		port := portOf(io)
		port.Optional = io.GetOptional()
		if io.GetAllowRaggedBatch() {
			port.Dims, port.Unbatched = tensor.Of(-1), true
		}
		if err := p.input(port); err != nil {
			return nil, err
		}
	}
	for _, c := range config.SignatureOf(cfg).Computed {
		if err := p.input(config.Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true}); err != nil {
			return nil, err
		}
	}
	for _, io := range cfg.GetOutput() {
		if err := p.output(portOf(io)); err != nil {
			return nil, err
		}
	}
	return p, p.sequence(cfg.GetSequenceBatching())
}

// sequence adds the ports that only sequence_batching declares.
func (p *ports) sequence(s *modelconfig.ModelSequenceBatching) error {
	for _, in := range s.GetControlInput() {
		for _, c := range in.GetControl() {
			if err := p.input(config.Port{Name: in.GetName(), DType: controlType(c), Dims: tensor.Of(1)}); err != nil {
				return err
			}
		}
	}
	for _, st := range s.GetState() {
		d := tensor.DType(st.GetDataType()) //nolint:gosec // the numbers are the same
		dims := tensor.Of(st.GetDims()...)
		if err := p.input(config.Port{Name: st.GetInputName(), DType: d, Dims: dims}); err != nil {
			return err
		}
		if err := p.output(config.Port{Name: st.GetOutputName(), DType: d, Dims: dims}); err != nil {
			return err
		}
	}
	return nil
}

// controlType returns the data type of a control.
func controlType(c *modelconfig.ModelSequenceBatching_Control) tensor.DType {
	switch {
	case c.GetKind() == modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
		return tensor.DType(c.GetDataType()) //nolint:gosec // the numbers are the same
	case len(c.GetFp32FalseTrue()) > 0:
		return tensor.FP32
	case len(c.GetBoolFalseTrue()) > 0:
		return tensor.Bool
	default:
		return tensor.Int32
	}
}

func (p *ports) input(port config.Port) error {
	b, err := p.bound(&port, "input")
	p.sig.Inputs, p.in = append(p.sig.Inputs, port), append(p.in, b)
	return err
}

func (p *ports) output(port config.Port) error {
	b, err := p.bound(&port, "output")
	p.sig.Outputs, p.out = append(p.sig.Outputs, port), append(p.out, b)
	return err
}

// portOf returns the port of a declared tensor, with the shape at the model.
func portOf(io declaredIO) config.Port {
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape()
	}
	return config.Port{Name: io.GetName(), DType: tensor.DType(io.GetDataType()), Dims: tensor.Of(dims...)} //nolint:gosec // the numbers are the same
}

func (p *ports) bound(port *config.Port, side string) (boundPort, error) {
	n, ok := scalarOf(port.DType)
	if !ok {
		return boundPort{}, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", port.DType.ConfigName(), side, port.Name)
	}
	full := port.Dims
	if !port.Unbatched {
		full = port.FullDims(p.sig.MaxBatch)
	}
	if port.DType == tensor.Bytes && full.Rank() > 1 {
		return boundPort{}, status.Errorf(status.InvalidArg,
			"Triton only supports 1 dimensional List of String as %s for '%s': with a batch dimension its dims are [ 1 ] with reshape { shape: [ ] }, found shape %s",
			side, port.Name, full)
	}
	return boundPort{port.Name, port.DType, n, slices.Clone(full.Dims())}, nil
}
