package replay

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

// Tolerance is the permitted difference of floating-point elements: |replayed-captured| <= Absolute + Relative*|captured|. All
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

// The kinds of differences.
const (
	KindValues    = "values"    // elements differ
	KindShape     = "shape"     // the shape
	KindDatatype  = "datatype"  // the type of the elements
	KindMissing   = "missing"   // the tensor is not there
	KindResponses = "responses" // another number of responses
	KindStatus    = "status"    // the request failed then and succeeds now, or fails in another way
)

// Difference is a difference between a captured tensor and the replayed one.
type Difference struct {
	// Step and Tensor name the tensor by its producer. They are empty for KindStatus.
	Step   string `json:"step,omitempty"`
	Tensor string `json:"tensor,omitempty"`
	// Response is the number of the response of a decoupled step, from 1; 0 for other steps.
	Response int    `json:"response,omitempty"`
	Kind     string `json:"kind"`
	// Captured and Replayed are what differs, as text. For KindValues they are the elements at Index, which differ most.
	Captured string  `json:"captured"`
	Replayed string  `json:"replayed"`
	Index    []int64 `json:"index,omitempty"`
	// Different of the Elements differ, by at most Absolute and, in relation to the captured element, Relative. Both are nil where
	// no number says it: for text, NaN, and infinities, and Relative for elements that were 0.
	Different int64    `json:"different,omitempty"`
	Elements  int64    `json:"elements,omitempty"`
	Absolute  *float64 `json:"absolute,omitempty"`
	Relative  *float64 `json:"relative,omitempty"`
}

// content is a tensor to compare. Whole is false if data has not the elements of the type and the shape.
type content struct {
	dtype tensor.DType
	shape []int64
	data  []byte
	whole bool
}

// compare returns the difference of two tensors, nil if there is none. Loose compares shapes without extents of 1: the response of
// an ensemble may have a batch dimension that its step has not.
func compare(want, got *content, near Tolerance, loose bool) *Difference {
	a, b := want.shape, got.shape
	if loose {
		a, b = withoutOnes(a), withoutOnes(b)
	}
	switch {
	case want.dtype != got.dtype:
		return &Difference{Kind: KindDatatype, Captured: want.dtype.String(), Replayed: got.dtype.String()}
	case !slices.Equal(a, b):
		return &Difference{Kind: KindShape, Captured: brackets(want.shape), Replayed: brackets(got.shape)}
	case bytes.Equal(want.data, got.data):
		return nil
	case !want.whole || !got.whole:
		return &Difference{Kind: KindValues, Captured: fmt.Sprintf("%d bytes", len(want.data)), Replayed: fmt.Sprintf("%d other bytes", len(got.data))}
	}
	d := &Difference{Kind: KindValues, Elements: tensor.Of(want.shape...).Elements()}
	if want.dtype == tensor.Bytes {
		d.texts(want, got)
	} else {
		d.numbers(want, got, near)
	}
	if d.Different == 0 {
		return nil
	}
	return d
}

// brackets returns a shape or an index as text. For example: [1,2].
func brackets(list []int64) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ",") }

func withoutOnes(shape []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(shape), func(n int64) bool { return n == 1 })
}

// texts compares elements of BYTES.
func (d *Difference) texts(want, got *content) {
	a, b := want.data, got.data
	for i := int64(0); len(a) > 0 && len(b) > 0; i++ {
		var x, y []byte
		x, a, _ = tensor.NextBytes(a)
		y, b, _ = tensor.NextBytes(b)
		if bytes.Equal(x, y) {
			continue
		}
		if d.Different++; d.Different == 1 {
			d.Index, d.Captured, d.Replayed = position(i, want.shape), quoted(x), quoted(y)
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
func (d *Difference) numbers(want, got *content, near Tolerance) {
	size, worst, at := want.dtype.Size(), -1.0, 0
	relative := -1.0
	for i := 0; i+size <= len(want.data); i += size {
		x, y := want.data[i:i+size], got.data[i:i+size]
		if bytes.Equal(x, y) {
			continue
		}
		absolute, ratio, equal := distance(want.dtype, x, y, near)
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
	d.Index = position(int64(at/size), want.shape)
	d.Captured, d.Replayed = element(want.dtype, want.data[at:at+size]), element(want.dtype, got.data[at:at+size])
	if want.dtype != tensor.Bool {
		if d.Absolute = finite(worst); relative >= 0 {
			d.Relative = &relative
		}
	}
}

// distance returns the absolute difference of two elements and the one in relation to want. Without a number for it, it is infinite.
func distance(dtype tensor.DType, want, got []byte, near Tolerance) (absolute, relative float64, equal bool) {
	x, y := number(dtype, want), number(dtype, got)
	if !floating(dtype) {
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

func floating(d tensor.DType) bool {
	return d == tensor.FP16 || d == tensor.BF16 || d == tensor.FP32 || d == tensor.FP64
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
