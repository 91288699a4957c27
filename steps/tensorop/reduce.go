package tensorop

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

var reduceNames = []string{"sum", "prod", "mean", "min", "max"}

// reduce makes one element of all that lie along some axes. Sums of floating-point
// numbers are made in float32 or float64 of 8 interleaved sums where the last axis goes;
// FP16 and BF16 are rounded at the end.
type reduce struct {
	name     string
	batch    int
	gone     [maxRank]bool // with the batch dimension
	order    []int         // the axes that stay, then those that go
	sorted   bool          // those that go lie together
	keep     bool
	as, out  tensor.DType
	position bool // argmax and argmin
}

func makeReduce(s *spec) error {
	d := s.in[0].DType
	r := &reduce{name: s.name, batch: s.batch}
	if err := r.types(s, d); err != nil {
		return err
	}
	var err error
	if r.keep, err = s.flag("keep_dims"); err != nil {
		return err
	}
	rank := s.rank()
	axes, err := s.axes("axes", rank)
	if err != nil {
		return err
	}
	switch {
	case r.position:
		axis, err := s.axis(rank, -1)
		if err != nil {
			return err
		}
		axes = []int{axis}
	case len(axes) == 0:
		for i := range rank {
			axes = append(axes, i)
		}
	}
	for _, a := range axes {
		r.gone[a+s.batch] = true
	}
	for i := range rank + s.batch {
		if !r.gone[i] {
			r.order = append(r.order, i)
		}
	}
	slices.Sort(axes)
	r.sorted = true
	for i, a := range axes {
		r.order = append(r.order, a+s.batch)
		r.sorted = r.sorted && (i == 0 || axes[i-1] == a-1)
	}
	dims := r.shape(&s.in[0].Dims, 0)
	s.output(r.out, dims)
	s.run = r
	return nil
}

// types says what is computed with and what comes out.
func (r *reduce) types(s *spec, d tensor.DType) error {
	float := isHalf(d) || d == tensor.FP32 || d == tensor.FP64
	sums := r.name == "sum" || r.name == "prod"
	r.position = r.name == "argmax" || r.name == "argmin"
	r.as, r.out = d, d
	switch {
	case d == tensor.Bytes:
		return s.errorf("input '%s' is %s, expected numbers", s.in[0].Name, d.ConfigName())
	case isHalf(d):
		r.as = tensor.FP32
	case float:
	case r.name == "mean":
		r.as, r.out = tensor.FP64, tensor.FP64
	case sums && slices.Contains([]tensor.DType{tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64}, d):
		r.as, r.out = tensor.Uint64, tensor.Uint64
	case sums:
		r.as, r.out = tensor.Int64, tensor.Int64
	case d == tensor.Bool:
		r.as = tensor.Uint8
	}
	if r.position {
		r.out = tensor.Int64
	}
	return nil
}

// shape returns the dims of the output; skip dimensions come before those of a row.
func (r *reduce) shape(in *tensor.Shape, skip int) tensor.Shape {
	out := *in
	to := 0
	for i, d := range in.Dims() {
		gone := r.gone[i+r.batch-skip]
		if gone && !r.keep {
			continue
		}
		if gone {
			d = 1
		}
		out.SetDim(to, d)
		to++
	}
	return cut(&out, to)
}

func (r *reduce) run(b *backends.Batch, x *scratch) error {
	in := b.In[0]
	shape := r.shape(&in.Shape, r.batch)
	out, err := b.Alloc(0, r.out, shape)
	if err != nil || shape.Elements() == 0 {
		return err
	}
	if in.DType != r.as && (in.DType != tensor.Bool || r.as != tensor.Uint8) {
		wide, err := widenedOf(b, &in, r.as)
		if err != nil {
			return err
		}
		defer wide.Release()
		in = wide
	}
	g, err := r.line(b, x, &in)
	if err != nil {
		return err
	}
	if r.gathered() {
		defer in.Release()
	}
	if isHalf(r.out) {
		result, err := temporary(b, tensor.FP32, &shape)
		if err != nil {
			return err
		}
		defer result.Release()
		r.compute(&result, &in, g)
		_, err = convert(b, out, &result, wrap)
		return err
	}
	r.compute(out, &in, g)
	return nil
}

// lineup is how the axes that go lie: n of them, with inner elements after each.
type lineup struct{ outer, n, inner int }

// gathered tells whether elements are moved so that the axes that go are the last.
func (r *reduce) gathered() bool { return !r.sorted }

// line finds out how the axes that go lie. Where they are not together, in becomes a
// tensor whose last axes they are, which moves to the caller.
func (r *reduce) line(b *backends.Batch, x *scratch, in *tensor.Tensor) (lineup, error) {
	g := lineup{1, 1, 1}
	before := true
	for i, d := range in.Shape.Dims() {
		switch {
		case r.gone[i]:
			g.n, before = g.n*int(d), false
		case before || r.gathered():
			g.outer *= int(d)
		default:
			g.inner *= int(d)
		}
	}
	if g.n == 0 && r.name != "sum" && r.name != "prod" && r.name != "mean" {
		return g, status.Errorf(status.InvalidArg, "operation '%s' of no elements has no result", r.name)
	}
	if !r.gathered() {
		return g, nil
	}
	shape := in.Shape
	for i, a := range r.order {
		shape.SetDim(i, in.Shape.Dim(a))
	}
	t, err := temporary(b, in.DType, &shape)
	if err != nil {
		return g, err
	}
	permuted(&x.loop, &shape, &in.Shape, r.order)
	spread(&x.loop, &t, 0, in)
	*in = t
	return g, nil
}

func (r *reduce) compute(out, in *tensor.Tensor, g lineup) {
	switch in.DType {
	case tensor.Int8:
		reduceAll[int8](r, out, in, g)
	case tensor.Int16:
		reduceAll[int16](r, out, in, g)
	case tensor.Int32:
		reduceAll[int32](r, out, in, g)
	case tensor.Int64:
		reduceAll[int64](r, out, in, g)
	case tensor.Uint8, tensor.Bool:
		reduceAll[uint8](r, out, in, g)
	case tensor.Uint16:
		reduceAll[uint16](r, out, in, g)
	case tensor.Uint32:
		reduceAll[uint32](r, out, in, g)
	case tensor.Uint64:
		reduceAll[uint64](r, out, in, g)
	case tensor.FP32:
		reduceAll[float32](r, out, in, g)
	default:
		reduceAll[float64](r, out, in, g)
	}
}
