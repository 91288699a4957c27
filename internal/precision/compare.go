package precision

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Output is how far one output of a version is from that of its reference, over all requests. A figure that the type of the output does
// not have is nil.
type Output struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Rows     int64  `json:"rows"`
	// Cosine is the worst cosine similarity of a row, MeanCosine that of all rows on average. A row is all elements of one request's row:
	// for a model that does not batch, of the request. Rows of zeros have the similarity 1 to themselves and 0 to others.
	Cosine     *float64 `json:"cosine,omitempty"`
	MeanCosine *float64 `json:"mean_cosine,omitempty"`
	// Difference is the largest absolute difference of two elements.
	Difference *float64 `json:"difference,omitempty"`
	// Top1 is the share of vectors, along the last dimension, whose largest element is at the same place. For integers, booleans and
	// strings it is the share of rows that are equal.
	Top1 *float64 `json:"top1,omitempty"`
	// NotFinite counts elements that are NaN or infinite where the reference has a number, or another one.
	NotFinite int64 `json:"not_finite,omitempty"`
}

// Tensor is an output to compare. Data has the elements of the type and the shape.
type Tensor struct {
	Name  string
	DType tensor.DType
	Shape []int64
	Data  []byte
}

// Comparison adds up the figures of the outputs of requests. The zero value is ready. It is not safe for concurrent use.
type Comparison struct {
	Requests int
	outputs  []*sums
}

// sums are the figures of an output so far.
type sums struct {
	Output

	float             bool
	cosines           float64
	vectors, agreeing int64
}

// Add compares the outputs of one request: want is the reference's, got the version's. batched says that the first dimension is the
// rows. An output that is missing, or of another type or shape, is an error that names it.
func (c *Comparison) Add(want, got []Tensor, batched bool) error {
	if len(want) != len(got) {
		return status.Errorf(status.InvalidArg, "expected %d outputs, found %d", len(want), len(got))
	}
	for i := range want {
		w := &want[i]
		k := slices.IndexFunc(got, func(t Tensor) bool { return t.Name == w.Name })
		if k < 0 {
			return status.Errorf(status.InvalidArg, "output '%s' is missing", w.Name)
		}
		g := &got[k]
		if w.DType != g.DType || !slices.Equal(w.Shape, g.Shape) || w.DType != tensor.Bytes && len(w.Data) != len(g.Data) {
			return status.Errorf(status.InvalidArg, "output '%s' is %s %v, expected %s %v as the reference has it", w.Name, g.DType, g.Shape, w.DType, w.Shape)
		}
		c.output(w).add(w, g, batched)
	}
	c.Requests++
	return nil
}

// output returns the figures of an output.
func (c *Comparison) output(t *Tensor) *sums {
	for _, o := range c.outputs {
		if o.Name == t.Name {
			return o
		}
	}
	o := &sums{Output: Output{Name: t.Name, Datatype: t.DType.String()}, float: t.DType.IsFloat()}
	c.outputs = append(c.outputs, o)
	return o
}

// Outputs returns the figures of all outputs, in the order of their first occurrence.
func (c *Comparison) Outputs() []Output {
	var list []Output
	for _, s := range c.outputs {
		o := s.Output
		if s.float && o.Rows > 0 {
			mean := s.cosines / float64(o.Rows)
			o.MeanCosine = &mean
		}
		if s.vectors > 0 {
			share := float64(s.agreeing) / float64(s.vectors)
			o.Top1 = &share
		}
		list = append(list, o)
	}
	return list
}

// add compares two tensors.
func (s *sums) add(want, got *Tensor, batched bool) {
	rows, last := int64(1), int64(1)
	if batched && len(want.Shape) > 0 {
		rows = want.Shape[0]
	}
	if n := len(want.Shape); n > 0 {
		last = want.Shape[n-1]
	}
	if rows == 0 || len(want.Data) == 0 {
		return
	}
	if !s.float {
		s.equal(want, got, rows)
		return
	}
	a, b := floats(want.DType, want.Data), floats(got.DType, got.Data)
	size := len(a) / int(rows)
	for row := range int(rows) {
		s.row(a[row*size:][:size], b[row*size:][:size])
	}
	if last > 1 && (!batched || len(want.Shape) > 1) {
		for i := 0; i+int(last) <= len(a); i += int(last) {
			s.vectors++
			if largest(a[i:][:last]) == largest(b[i:][:last]) {
				s.agreeing++
			}
		}
	}
}

// row adds the figures of one row.
func (s *sums) row(want, got []float64) {
	var product, a, b float64
	worst := 0.0
	for i, x := range want {
		y := got[i]
		if x == y || math.IsNaN(x) && math.IsNaN(y) {
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				product, a, b = product+x*y, a+x*x, b+y*y
			}
			continue
		}
		if math.IsNaN(x-y) || math.IsInf(x-y, 0) {
			s.NotFinite++
			continue
		}
		worst = max(worst, math.Abs(x-y))
		product, a, b = product+x*y, a+x*x, b+y*y
	}
	cosine := product / math.Sqrt(a) / math.Sqrt(b)
	switch {
	case a == 0 && b == 0:
		cosine = 1
	case a == 0 || b == 0 || math.IsNaN(cosine):
		cosine = 0
	}
	cosine = min(max(cosine, -1), 1)
	s.Rows++
	s.cosines += cosine
	if s.Cosine == nil || cosine < *s.Cosine {
		s.Cosine = &cosine
	}
	if s.Difference == nil || worst > *s.Difference {
		s.Difference = &worst
	}
}

// equal counts the rows of integers, booleans or strings that are equal.
func (s *sums) equal(want, got *Tensor, rows int64) {
	s.Rows += rows
	s.vectors += rows
	if want.DType == tensor.Bytes {
		s.agreeing += equalTexts(want, got, rows)
		return
	}
	size := len(want.Data) / int(rows)
	for row := range int(rows) {
		if bytes.Equal(want.Data[row*size:][:size], got.Data[row*size:][:size]) {
			s.agreeing++
		}
	}
}

// equalTexts counts the rows of BYTES that are equal.
func equalTexts(want, got *Tensor, rows int64) (agreeing int64) {
	each := tensor.Of(want.Shape...).Elements() / rows
	a, b := want.Data, got.Data
	for range rows {
		same := true
		for range each {
			var x, y []byte
			var first, second bool
			x, a, first = tensor.NextBytes(a)
			y, b, second = tensor.NextBytes(b)
			same = same && first && second && bytes.Equal(x, y)
		}
		if same {
			agreeing++
		}
	}
	return agreeing
}

// largest returns the place of the largest element, the first one of equal ones. NaN is never the largest.
func largest(v []float64) int {
	at, most := 0, math.Inf(-1)
	for i, x := range v {
		if x > most {
			at, most = i, x
		}
	}
	return at
}

// floats returns the elements of a tensor.
func floats(d tensor.DType, data []byte) []float64 {
	le, size := binary.LittleEndian, d.Size()
	list := make([]float64, len(data)/size)
	for i := range list {
		b := data[i*size:]
		switch d { //nolint:exhaustive // the others are no floats
		case tensor.FP16:
			list[i] = float64(tensor.FP16ToFloat32(le.Uint16(b)))
		case tensor.BF16:
			list[i] = float64(tensor.BF16ToFloat32(le.Uint16(b)))
		case tensor.FP32:
			list[i] = float64(math.Float32frombits(le.Uint32(b)))
		default:
			list[i] = math.Float64frombits(le.Uint64(b))
		}
	}
	return list
}
