package starter

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// buildCustom adds the model alone, and an ensemble around it to which steps can be added.
func (b *builder) buildCustom() error {
	var in, out [][2]string
	for _, p := range b.m.Inputs {
		in = append(in, [2]string{p.Name, p.Name})
		b.ensembleInputs = append(b.ensembleInputs, port{name: p.Name, dtype: p.DType, dims: b.whole(p)})
		b.r.Sample = append(b.r.Sample, b.sampleOf(p))
	}
	for _, p := range b.m.Outputs {
		name := p.Name
		for _, taken := range b.m.Inputs {
			if taken.Name == name {
				name += "_out"
			}
		}
		out = append(out, [2]string{p.Name, name})
		b.r.outputs = append(b.r.outputs, port{name: name, dtype: p.DType, dims: b.whole(p)})
	}
	b.model(in, out)
	return nil
}

// whole returns the dims of a port of the model in a configuration. They cannot be empty.
func (b *builder) whole(p Port) []int64 {
	dims := p.Shape
	if b.batch.max > 0 {
		dims = dims[1:]
	}
	if len(dims) == 0 {
		return []int64{1}
	}
	return dims
}

// Extents of variable dimensions in the sample of a model of unknown kind.
const (
	sampleTokens = 8
	sampleSide   = 64
)

// sampleOf returns a tensor for an input: numbers from 0 to 1, ids from 1, or texts.
func (b *builder) sampleOf(p Port) Sample {
	s := Sample{Name: p.Name, DType: p.DType, Shape: append([]int64{}, p.Shape...)}
	if b.batch.max > 0 && len(p.Shape) == 1 {
		s.Shape = []int64{1, 1} // dims [1] stands for none
	}
	for i, d := range s.Shape {
		if d >= 0 {
			continue
		}
		switch {
		case i == 0 && len(s.Shape) > 1:
			s.Shape[i] = 1
		case len(s.Shape) == 4 && i > 0:
			s.Shape[i] = sampleSide
			if i == 1 && contains(p.symbol(1), "channel") {
				s.Shape[i] = 3
			}
		case contains(p.Name, "past", "cache"):
			s.Shape[i] = 1
		default:
			s.Shape[i] = sampleTokens
		}
	}
	if len(s.Shape) == 0 {
		s.Shape = []int64{1}
	}
	n := int64(1)
	for _, d := range s.Shape {
		n *= d
	}
	const most = 1 << 26 // elements: a larger sample is no use in a repository
	if n > most {
		s.Shape = nil
		return s
	}
	for i := range n {
		s.Data = appendSample(s.Data, p.DType, i)
	}
	return s
}

// appendSample appends element i of a sample.
func appendSample(data []byte, d tensor.DType, i int64) []byte {
	f := float32(i%17) / 16
	le := binary.LittleEndian
	switch d {
	case tensor.Bytes:
		return tensor.AppendBytes(data, "sample")
	case tensor.FP32:
		return le.AppendUint32(data, math.Float32bits(f))
	case tensor.FP64:
		return le.AppendUint64(data, math.Float64bits(float64(f)))
	case tensor.FP16:
		return le.AppendUint16(data, tensor.Float32ToFP16(f))
	case tensor.BF16:
		return le.AppendUint16(data, uint16(math.Float32bits(f)>>16)) //nolint:gosec // the upper half
	}
	element := make([]byte, d.Size()) // a small integer, or true
	element[0] = 1
	return append(data, element...)
}
