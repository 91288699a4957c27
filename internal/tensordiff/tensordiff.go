// Package tensordiff compares tensors element by element with a tolerance: captured with replayed ones, and the responses of a shadow with
// those of the step that it copies.
//
// For example, FP32 [1,2] and [1,3] differ in one of two elements, most at index [1], by 1 or half of the expected 2.
package tensordiff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Tolerance is the permitted difference of floating-point elements: |got-want| <= Absolute + Relative*|want|. All
// other elements must be equal. NaN is equal to NaN, and an infinity to itself only.
type Tolerance struct{ Absolute, Relative float64 }

// DefaultTolerance returns the tolerance for a type. That of FP32 and FP64 is the one of golden requests, and covers the
// differences between kernels of different processors. FP16 and BF16 may differ by two units in the last place.
func DefaultTolerance(d tensor.DType) Tolerance {
	switch d {
	case tensor.FP16:
		return Tolerance{1e-3, 2e-3}
	case tensor.BF16:
		return Tolerance{1e-2, 16e-3}
	}
	return Tolerance{1e-5, 1e-4}
}

// With returns the tolerance with other bounds, where they are not nil.
func (t Tolerance) With(absolute, relative *float64) Tolerance {
	if absolute != nil {
		t.Absolute = *absolute
	}
	if relative != nil {
		t.Relative = *relative
	}
	return t
}

// The kinds of differences.
const (
	KindValues   = "values"   // elements differ
	KindShape    = "shape"    // the shape
	KindDatatype = "datatype" // the type of the elements
)

// Difference is how two tensors differ.
type Difference struct {
	Kind string `json:"kind"`
	// Want and Got are what differs, as text. For KindValues they are the elements at Index, which differ most. The names in JSON are those
	// of a replay.
	Want  string  `json:"captured"`
	Got   string  `json:"replayed"`
	Index []int64 `json:"index,omitempty"`
	// Different of the Elements differ, by at most Absolute and, in relation to the wanted element, Relative. Both are nil where
	// no number says it: for text, NaN, and infinities, and Relative for elements that were 0.
	Different int64    `json:"different,omitempty"`
	Elements  int64    `json:"elements,omitempty"`
	Absolute  *float64 `json:"absolute,omitempty"`
	Relative  *float64 `json:"relative,omitempty"`
}

// String says what differs. For example, "differs in 1 of 2 elements, most at [1]: 3, expected 2".
func (d *Difference) String() string {
	switch {
	case d.Kind == KindDatatype:
		return "is " + d.Got + ", expected " + d.Want
	case d.Kind == KindShape:
		return "has the shape " + d.Got + ", expected " + d.Want
	case d.Index == nil:
		return "has " + d.Got + ", expected " + d.Want
	}
	return fmt.Sprintf("differs in %d of %d elements, most at %s: %s, expected %s", d.Different, d.Elements, Brackets(d.Index), d.Got, d.Want)
}

// Tensor is a tensor to compare.
type Tensor struct {
	DType tensor.DType
	Shape []int64
	Data  []byte
	Whole bool // Data has the elements of the type and the shape
}

// Compare returns the difference of two tensors, nil if there is none. With loose it compares shapes without extents of 1: the response of
// an ensemble may have a batch dimension that its step has not.
func Compare(want, got *Tensor, near Tolerance, loose bool) *Difference {
	a, b := want.Shape, got.Shape
	if loose {
		a, b = withoutOnes(a), withoutOnes(b)
	}
	switch {
	case want.DType != got.DType:
		return &Difference{Kind: KindDatatype, Want: want.DType.String(), Got: got.DType.String()}
	case !slices.Equal(a, b):
		return &Difference{Kind: KindShape, Want: Brackets(want.Shape), Got: Brackets(got.Shape)}
	case bytes.Equal(want.Data, got.Data):
		return nil
	case !want.Whole || !got.Whole:
		return &Difference{Kind: KindValues, Want: fmt.Sprintf("%d bytes", len(want.Data)), Got: fmt.Sprintf("%d other bytes", len(got.Data))}
	}
	d := &Difference{Kind: KindValues, Elements: tensor.Of(want.Shape...).Elements()}
	if want.DType == tensor.Bytes {
		d.texts(want, got)
	} else {
		d.numbers(want, got, near)
	}
	if d.Different == 0 {
		return nil
	}
	return d
}

// Brackets returns a shape or an index as text. For example: [1,2].
func Brackets(list []int64) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ",") }

func withoutOnes(shape []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(shape), func(n int64) bool { return n == 1 })
}

// texts compares elements of BYTES.
func (d *Difference) texts(want, got *Tensor) {
	a, b := want.Data, got.Data
	for i := int64(0); len(a) > 0 && len(b) > 0; i++ {
		var x, y []byte
		x, a, _ = tensor.NextBytes(a)
		y, b, _ = tensor.NextBytes(b)
		if bytes.Equal(x, y) {
			continue
		}
		if d.Different++; d.Different == 1 {
			d.Index, d.Want, d.Got = position(i, want.Shape), quoted(x), quoted(y)
		}
	}
}

// maxQuoted is the length from which texts are shortened.
const maxQuoted = 60

func quoted(b []byte) string {
	if len(b) > maxQuoted {
		return strconv.Quote(string(b[:maxQuoted])) + fmt.Sprintf("... (%d bytes)", len(b))
	}
	return strconv.Quote(string(b))
}

// numbers compares elements of numbers and BOOL.
func (d *Difference) numbers(want, got *Tensor, near Tolerance) {
	size, worst, at := want.DType.Size(), -1.0, 0
	relative := -1.0
	for i := 0; i+size <= len(want.Data); i += size {
		x, y := want.Data[i:i+size], got.Data[i:i+size]
		if bytes.Equal(x, y) {
			continue
		}
		absolute, ratio, equal := distance(want.DType, x, y, near)
		if equal {
			continue
		}
		d.Different++
		if !math.IsInf(ratio, 0) {
			relative = max(relative, ratio)
		}
		if absolute > worst {
			worst, at = absolute, i
		}
	}
	if d.Different == 0 {
		return
	}
	d.Index = position(int64(at/size), want.Shape)
	d.Want, d.Got = element(want.DType, want.Data[at:at+size]), element(want.DType, got.Data[at:at+size])
	if want.DType != tensor.Bool {
		if d.Absolute = finite(worst); relative >= 0 {
			d.Relative = &relative
		}
	}
}

// distance returns the absolute difference of two elements and the one in relation to want. Without a number for it, it is infinite.
func distance(dtype tensor.DType, want, got []byte, near Tolerance) (absolute, relative float64, equal bool) {
	x, y := number(dtype, want), number(dtype, got)
	if !dtype.IsFloat() {
		absolute = gap(dtype, want, got)
		return absolute, absolute / math.Abs(x), false
	}
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		equal = math.IsNaN(x) && math.IsNaN(y)
		return math.Inf(1), math.Inf(1), equal
	case math.IsInf(x, 0) || math.IsInf(y, 0):
		return math.Inf(1), math.Inf(1), x == y
	}
	absolute = math.Abs(y - x)
	return absolute, absolute / math.Abs(x), absolute <= near.Absolute+near.Relative*math.Abs(x)
}

// gap returns the absolute difference of two integers that differ, which as numbers with a fraction may be equal.
func gap(d tensor.DType, a, b []byte) float64 {
	x, signed := tracing.Integer(d, a)
	y, _ := tracing.Integer(d, b)
	if less := x < y; signed && int64(x) < int64(y) || !signed && less { //nolint:gosec // two's complement
		x, y = y, x
	}
	return float64(x - y)
}

func finite(x float64) *float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return nil
	}
	return &x
}

// number returns an element as a number. Large integers lose their last digits.
func number(d tensor.DType, b []byte) float64 {
	le := binary.LittleEndian
	switch d { //nolint:exhaustive // the others are whole numbers
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(le.Uint16(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(le.Uint16(b)))
	case tensor.FP32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case tensor.FP64:
		return math.Float64frombits(le.Uint64(b))
	}
	n, signed := tracing.Integer(d, b)
	if signed {
		return float64(int64(n)) //nolint:gosec // two's complement
	}
	return float64(n)
}

// element returns an element as text.
func element(d tensor.DType, b []byte) string {
	switch d { //nolint:exhaustive // the others are those of traces
	case tensor.Bool:
		return strconv.FormatBool(b[0] != 0)
	case tensor.FP16, tensor.BF16:
		return strconv.FormatFloat(number(d, b), 'g', -1, 32)
	}
	return string(tracing.AppendElement(nil, d, b))
}

// position returns the index of the n-th element.
func position(n int64, shape []int64) []int64 {
	index := make([]int64, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 0 {
			index[i], n = n%shape[i], n/shape[i]
		}
	}
	return index
}
