package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// Padding defines how rows of different lengths share a batch, by the parameters pad.INPUT (the value to fill with) and
// unpad.OUTPUT (the input whose length the output is cut back to). For example, pad.ids = "0" and unpad.logits = "ids".
type Padding struct {
	inputs  []*padInput
	outputs []*padOutput
}

// padInput pads one input along its first variable dimension.
type padInput struct {
	dim  int    // counted with the batch dimension
	elem []byte // one element of padding, nil when it is all zero bytes
}

// padOutput cuts one output along its first variable dimension.
type padOutput struct {
	dim           int // counted with the batch dimension
	like, likeDim int // the input, and its padded dimension
}

// NewPadding reads the padding rules among a model's parameters; nil without any. Unsuitable ports are an error.
func NewPadding(sig *config.Signature, params map[string]string) (*Padding, error) {
	sig = sig.AtModel()
	p := &Padding{inputs: make([]*padInput, len(sig.Inputs)), outputs: make([]*padOutput, len(sig.Outputs))}
	found := false
	for _, key := range slices.Sorted(maps.Keys(params)) { // pad before unpad
		var err error
		if name, ok := strings.CutPrefix(key, config.PadPrefix); ok {
			found, err = true, p.addInput(sig, key, name, params[key])
		} else if name, ok := strings.CutPrefix(key, config.UnpadPrefix); ok {
			err = p.addOutput(sig, key, name, params[key])
		}
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, nil
	}
	if sig.MaxBatch <= 0 {
		return nil, fmt.Errorf("model '%s' has parameters that pad inputs, but max_batch_size is 0", sig.Model)
	}
	return p, nil
}

func (p *Padding) addInput(sig *config.Signature, key, name, value string) error {
	i := sig.Input(name)
	if i < 0 {
		return fmt.Errorf("parameter '%s' of model '%s' names no input", key, sig.Model)
	}
	port := &sig.Inputs[i]
	if port.Unbatched || port.ShapeTensor {
		return fmt.Errorf("parameter '%s' of model '%s': input '%s' is ragged or a shape tensor and cannot be padded", key, sig.Model, name)
	}
	dim := slices.Index(port.Dims.Dims(), -1)
	if dim < 0 {
		return fmt.Errorf("parameter '%s' of model '%s': input '%s' has no variable dimension, its dims are %s", key, sig.Model, name, port.Dims)
	}
	elem, err := encode(port.DType, value)
	if err != nil {
		return fmt.Errorf("parameter '%s' of model '%s' is '%s': %w", key, sig.Model, value, err)
	}
	p.inputs[i] = &padInput{dim: dim + 1, elem: elem}
	return nil
}

func (p *Padding) addOutput(sig *config.Signature, key, name, value string) error {
	o, i := sig.Output(name), sig.Input(value)
	switch {
	case o < 0:
		return fmt.Errorf("parameter '%s' of model '%s' names no output", key, sig.Model)
	case i < 0 || p.inputs[i] == nil:
		return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected an input with a '%s' parameter", key, sig.Model, value, config.PadPrefix+"INPUT")
	}
	port := &sig.Outputs[o]
	if port.Unbatched || port.ShapeTensor {
		return fmt.Errorf("parameter '%s' of model '%s': output '%s' is split by batch_output or a shape tensor and cannot be cut", key, sig.Model, name)
	}
	dim := slices.Index(port.Dims.Dims(), -1)
	if dim < 0 || port.DType == tensor.Bytes {
		return fmt.Errorf("parameter '%s' of model '%s': output '%s' has no variable dimension of numbers, its dims are %s", key, sig.Model, name, port.Dims)
	}
	p.outputs[o] = &padOutput{dim: dim + 1, like: i, likeDim: p.inputs[i].dim}
	return nil
}

func (p *Padding) input(port int) *padInput {
	if p == nil {
		return nil
	}
	return p.inputs[port]
}

func (p *Padding) output(port int) *padOutput {
	if p == nil {
		return nil
	}
	return p.outputs[port]
}

// fill writes padding over dst, a whole number of elements.
func (p *padInput) fill(dst []byte) {
	if p.elem == nil {
		clear(dst)
		return
	}
	for len(dst) > 0 {
		dst = dst[copy(dst, p.elem):]
	}
}

// encode returns one element of type d, nil when it is all zero bytes.
func encode(d tensor.DType, value string) ([]byte, error) {
	var bits uint64
	var err error
	switch d {
	case tensor.FP32, tensor.FP64:
		var f float64
		if f, err = strconv.ParseFloat(value, d.Size()*8); err != nil {
			return nil, errors.New("expected a number")
		}
		if bits = math.Float64bits(f); d == tensor.FP32 {
			bits = uint64(math.Float32bits(float32(f)))
		}
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		var n int64
		n, err = strconv.ParseInt(value, 10, d.Size()*8)
		bits = uint64(n)
	case tensor.Bool, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits, err = strconv.ParseUint(value, 10, d.Size()*8)
	default:
		return nil, fmt.Errorf("inputs of type %s cannot be padded", d)
	}
	if err != nil {
		return nil, fmt.Errorf("expected an integer of type %s", d)
	}
	if bits == 0 {
		return nil, nil
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:d.Size()], nil
}
