package exec

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// picker makes a tensor out of rows of others.
type picker struct {
	alloc tensor.Allocator
	dtype tensor.DType
	picks []pick // per row
}

// pick is a row of a tensor; from is -1 for the constant.
type pick struct{ from, row int32 }

// whole returns the tensor that has just the picked rows, nil if there is none.
func (p *picker) whole(in []tensor.Tensor) *tensor.Tensor {
	if len(p.picks) == 0 || p.picks[0].from < 0 {
		return nil
	}
	t := &in[p.picks[0].from]
	for i, k := range p.picks {
		if k.from != p.picks[0].from || k.row != int32(i) { //nolint:gosec // a batch has few rows
			return nil
		}
	}
	if t.Shape.Dim(0) != int64(len(p.picks)) {
		return nil
	}
	return t
}

// make returns the tensor of the picked rows, which must have one shape.
func (p *picker) make(in []tensor.Tensor, otherwise plan.Constant) (tensor.Tensor, error) {
	shape, n, err := p.measure(in, &otherwise)
	if err != nil {
		return tensor.Tensor{}, err
	}
	spans := make([]func(row int32) []byte, len(in))
	for i := range in {
		if in[i].Present() {
			spans[i] = rowSpans(&in[i])
		}
	}
	if p.dtype == tensor.Bytes {
		n = 0
		for _, k := range p.picks {
			n += len(rowAt(k, spans, &otherwise))
		}
	}
	out, err := tensor.NewBytes(p.alloc, shape.Prepend(int64(len(p.picks))), n)
	if err != nil {
		return out, err
	}
	out.DType = p.dtype
	dst := out.Bytes()
	for _, k := range p.picks {
		dst = dst[copy(dst, rowAt(k, spans, &otherwise)):]
	}
	return out, nil
}

func rowAt(k pick, spans []func(row int32) []byte, otherwise *plan.Constant) []byte {
	if k.from < 0 {
		return otherwise.Data
	}
	return spans[k.from](k.row)
}

// measure returns the shape of a row, and the bytes of all rows of fixed-size elements.
func (p *picker) measure(in []tensor.Tensor, otherwise *plan.Constant) (shape tensor.Shape, n int, err error) {
	known := false
	for i, k := range p.picks {
		of := otherwise.Shape
		if k.from >= 0 {
			if in[k.from].DType != p.dtype {
				return shape, 0, status.Errorf(status.InvalidArg, "row %d is of type %s, expected %s", i, in[k.from].DType, p.dtype)
			}
			of = in[k.from].Shape.Tail()
		}
		switch {
		case !known:
			shape, known = of, true
		case !shape.Equal(of):
			return shape, 0, status.Errorf(status.InvalidArg, "row %d has the shape %s, expected that of the rows before it, %s", i, of, shape)
		}
	}
	return shape, int(shape.Elements()) * p.dtype.Size() * len(p.picks), nil
}

// rowSpans returns a function that returns the memory of a row.
func rowSpans(t *tensor.Tensor) func(row int32) []byte {
	data, n := t.Bytes(), int(t.Shape.Dim(0))
	if n == 0 {
		return func(int32) []byte { return nil }
	}
	if t.DType != tensor.Bytes {
		size := len(data) / n
		return func(row int32) []byte { return data[int(row)*size : (int(row)+1)*size] }
	}
	ends := bytesEnds(t, 1)
	return func(row int32) []byte { return data[ends[row]:ends[row+1]] }
}

// bytesEnds returns, after a 0, where each part of a BYTES tensor ends. A part is what one index of the first dimensions has; leading is their number.
func bytesEnds(t *tensor.Tensor, leading int) []int {
	per, count := 1, 1
	for i := range t.Shape.Rank() {
		if n := int(t.Shape.Dim(i)); i < leading {
			count *= n
		} else {
			per *= n
		}
	}
	data := t.Bytes()
	ends, rest := make([]int, 1, count+1), data
	for range count {
		for range per {
			_, after, ok := tensor.NextBytes(rest)
			if !ok {
				break
			}
			rest = after
		}
		ends = append(ends, len(data)-len(rest))
	}
	return ends
}
