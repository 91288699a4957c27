package pytorch

import (
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

// boundPort is a declared tensor as PyTorch has it.
type boundPort struct {
	name   string
	dtype  tensor.DType
	scalar int32 // PyTorch's number of dtype
	// dims are the declared dimensions with the batch in front, -1 for any extent.
	dims []int64
}

// declaredIO is what config.pbtxt says about an input or output.
type declaredIO interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// signatureOf makes the signature of the configuration, which must declare everything.
func signatureOf(cfg *modelconfig.ModelConfig) (*config.Signature, []boundPort, []boundPort, error) {
	sig := &config.Signature{MaxBatch: int(cfg.GetMaxBatchSize())}
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return nil, nil, nil, status.Errorf(status.InvalidArg,
			"must specify at least one input and one output in its configuration: files of PyTorch's do not tell their types and shapes")
	}
	var ins, outs []boundPort
	for _, io := range cfg.GetInput() {
		p, b, err := bound(io, "input", sig.MaxBatch)
		if err != nil {
			return nil, nil, nil, err
		}
		p.Optional = io.GetOptional()
		sig.Inputs, ins = append(sig.Inputs, p), append(ins, b)
	}
	for _, io := range cfg.GetOutput() {
		p, b, err := bound(io, "output", sig.MaxBatch)
		if err != nil {
			return nil, nil, nil, err
		}
		sig.Outputs, outs = append(sig.Outputs, p), append(outs, b)
	}
	return sig, ins, outs, nil
}

func bound(io declaredIO, side string, maxBatch int) (config.Port, boundPort, error) {
	d := tensor.DType(io.GetDataType())
	n, ok := scalarOf(d)
	if !ok {
		return config.Port{}, boundPort{}, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", d.ConfigName(), side, io.GetName())
	}
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape() // tensors come and go in the model's shape
	}
	port := config.Port{Name: io.GetName(), DType: d, Dims: tensor.Of(dims...)}
	full := port.FullDims(maxBatch)
	if d == tensor.Bytes && full.Rank() > 1 {
		return port, boundPort{}, status.Errorf(status.InvalidArg,
			"Triton only supports 1 dimensional List of String as %s for '%s': with a batch dimension its dims are [ 1 ] with reshape { shape: [ ] }, found shape %s",
			side, io.GetName(), full)
	}
	return port, boundPort{port.Name, d, n, append([]int64(nil), full.Dims()...)}, nil
}
