package tensorop

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

var reduceNames = []string{"sum", "prod", "mean", "min", "max", "argmax", "argmin"}

// unsignedTypes are those whose sums and products are UINT64.
var unsignedTypes = []tensor.DType{tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64}

// reduce combines all elements along some axes to one. Floating-point sums are added in
// the element type: pairwise, in 8 interleaved sums, where the last axis is reduced. FP16
// and BF16 are computed as FP32 and rounded at the end.
type reduce struct {
	name     string
	batch    int
	reduced  [maxRank]bool // axes, the batch dimension among them
	order    []int         // the axes that stay, then the reduced ones
	adjacent bool          // the reduced axes follow one another
	keep     bool          // they stay with extent 1
	position bool          // argmax or argmin
	as, out  tensor.DType  // of the computation and of the output
}

func makeReduce(s *spec) error {
	r := &reduce{name: s.name, batch: s.batch, position: s.name == "argmax" || s.name == "argmin"}
	if err := r.setTypes(s); err != nil {
		return err
	}
	var err error
	if r.keep, err = s.flag("keep_dims"); err != nil {
		return err
	}
	axes, err := r.axes(s)
	if err != nil {
		return err
	}
	slices.Sort(axes)
	r.adjacent = true
	for i, a := range axes {
		r.reduced[a+s.batch] = true
		r.adjacent = r.adjacent && (i == 0 || axes[i-1] == a-1)
	}
	for i := range s.rank() + s.batch {
		if !r.reduced[i] {
			r.order = append(r.order, i)
		}
	}
	for _, a := range axes {
		r.order = append(r.order, a+s.batch)
	}
	s.output(r.out, r.shape(&s.in[0].Dims, 0))
	s.run = r
	return nil
}

// axes reads which axes are reduced: one for argmax and argmin, else all by default.
func (r *reduce) axes(s *spec) ([]int, error) {
	if r.position {
		axis, err := s.axis(s.rank(), -1)
		return []int{axis}, err
	}
	axes, err := s.axes("axes", s.rank())
	if err == nil && len(axes) == 0 {
		for i := range s.rank() {
			axes = append(axes, i)
		}
	}
	return axes, err
}

// setTypes chooses the types of the computation and of the output.
func (r *reduce) setTypes(s *spec) error {
	d := s.in[0].DType
	sums := r.name == "sum" || r.name == "prod"
	r.as, r.out = d, d
	switch {
	case d == tensor.Bytes:
		return s.errType(0, "numbers")
	case isHalf(d):
		r.as = tensor.FP32
	case d == tensor.FP32 || d == tensor.FP64:
	case r.name == "mean":
		r.as, r.out = tensor.FP64, tensor.FP64
	case sums && slices.Contains(unsignedTypes, d):
		r.as, r.out = tensor.Uint64, tensor.Uint64
	case sums:
		r.as, r.out = tensor.Int64, tensor.Int64
	}
	if r.position {
		r.out = tensor.Int64
	}
	return nil
}

// shape returns the dims of the output; batch of in's dimensions come before those of a row.
func (r *reduce) shape(in *tensor.Shape, batch int) tensor.Shape {
	out := *in
	to := 0
	for i, d := range in.Dims() {
		if r.reduced[i+r.batch-batch] {
			if !r.keep {
				continue
			}
			d = 1
		}
		out.SetDim(to, d)
		to++
	}
	return firstDims(&out, to)
}

func (r *reduce) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	shape := r.shape(&in.Shape, r.batch)
	out, err := b.Alloc(0, r.out, shape)
	if err != nil || shape.Elements() == 0 {
		return err
	}
	if in.DType != r.as {
		if in, err = x.converted(b, in, r.as); err != nil {
			return err
		}
	}
	in, g, err := r.lines(b, x, in)
	if err != nil {
		return err
	}
	result := out
	if isHalf(r.out) {
		if result, err = x.temp(b, tensor.FP32, &shape); err != nil {
			return err
		}
	}
	numbers[r.as].reduce(r, result, in, g)
	if result != out {
		_, err = convert(b, x, out, result, wrap)
	}
	return err
}

// lines says where the elements lie that are reduced to one: n of them, inner elements
// apart, and outer*inner such lines.
type lines struct{ outer, n, inner int }

// lines returns the layout of the reduced axes. Where they are not adjacent, the elements
// are first copied to a tensor whose last axes they are.
func (r *reduce) lines(b *backends.Batch, x *scratch, in *tensor.Tensor) (*tensor.Tensor, lines, error) {
	g := lines{1, 1, 1}
	before := true
	for i, d := range in.Shape.Dims() {
		switch {
		case r.reduced[i]:
			g.n, before = g.n*int(d), false
		case before || !r.adjacent:
			g.outer *= int(d)
		default:
			g.inner *= int(d)
		}
	}
	if g.n == 0 && r.name != "sum" && r.name != "prod" && r.name != "mean" {
		return nil, g, status.Errorf(status.InvalidArg, "operation '%s' of no elements has no result", r.name)
	}
	if r.adjacent {
		return in, g, nil
	}
	shape := in.Shape
	for i, a := range r.order {
		shape.SetDim(i, in.Shape.Dim(a))
	}
	t, err := x.temp(b, in.DType, &shape)
	if err != nil {
		return nil, g, err
	}
	permuted(&x.loop, &shape, &in.Shape, r.order)
	spread(&x.loop, t, 0, in)
	return t, g, nil
}
