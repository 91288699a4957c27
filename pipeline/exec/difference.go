package exec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// tolerance returns by how much numbers with a fraction may differ: |got-want| <= absolute + relative*|want|.
func tolerance(d tensor.DType, absolute, relative *float64) (a, r float64) {
	switch a, r = 1e-5, 1e-4; d { //nolint:exhaustive // the others are exact
	case tensor.FP16:
		a, r = 1e-3, 2e-3
	case tensor.BF16:
		a, r = 1e-2, 16e-3
	}
	if absolute != nil {
		a = *absolute
	}
	if relative != nil {
		r = *relative
	}
	return a, r
}

// difference returns how two tensors on the host differ, "" when they do not.
func difference(want, got *tensor.Tensor, absolute, relative *float64) string {
	switch {
	case want.DType != got.DType:
		return fmt.Sprintf("is %s, expected %s", got.DType, want.DType)
	case !want.Shape.Equal(got.Shape):
		return fmt.Sprintf("has the shape %s, expected %s", got.Shape, want.Shape)
	case bytes.Equal(want.Bytes(), got.Bytes()):
		return ""
	case want.DType == tensor.Bytes:
		return textDifference(want.Bytes(), got.Bytes())
	}
	size := want.DType.Size()
	a, r := tolerance(want.DType, absolute, relative)
	differ, first, worst := 0, -1, 0.0
	for i := 0; i+size <= min(want.Len, got.Len); i += size {
		x, y := want.Bytes()[i:i+size], got.Bytes()[i:i+size]
		gap, same := distance(want.DType, x, y, a, r)
		if same {
			continue
		}
		if differ++; first < 0 || gap > worst {
			first, worst = i, gap
		}
	}
	if differ == 0 {
		return ""
	}
	return fmt.Sprintf("differs in %d of %d elements, most in element %d: %s, expected %s", differ, want.Len/size, first/size,
		tracing.AppendElement(nil, got.DType, got.Bytes()[first:first+size]), tracing.AppendElement(nil, want.DType, want.Bytes()[first:first+size]))
}

// textDifference returns the first element of BYTES that differs.
func textDifference(want, got []byte) string {
	for i := 0; len(want) > 0 && len(got) > 0; i++ {
		var x, y []byte
		x, want, _ = tensor.NextBytes(want)
		if y, got, _ = tensor.NextBytes(got); !bytes.Equal(x, y) {
			return fmt.Sprintf("differs in element %d: %s, expected %s", i, shortText(y), shortText(x))
		}
	}
	return "has other bytes"
}

// shortText quotes the begin of a text.
func shortText(b []byte) string {
	const most = 60
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + "..."
	}
	return strconv.Quote(string(b))
}

// distance returns by how much two elements differ, and whether they count as the same.
func distance(d tensor.DType, want, got []byte, absolute, relative float64) (gap float64, same bool) {
	if bytes.Equal(want, got) {
		return 0, true
	}
	x, floating := fraction(d, want)
	if !floating {
		return 1, false
	}
	y, _ := fraction(d, got)
	switch gap = math.Abs(y - x); {
	case math.IsNaN(x) && math.IsNaN(y), x == y:
		return 0, true
	case math.IsNaN(gap) || math.IsInf(gap, 0):
		return math.Inf(1), false
	}
	return gap, gap <= absolute+relative*math.Abs(x)
}

// fraction returns an element that is a number with a fraction; false for other types.
func fraction(d tensor.DType, b []byte) (float64, bool) {
	switch le := binary.LittleEndian; d { //nolint:exhaustive // the others are whole numbers
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(le.Uint16(b))), true
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(le.Uint16(b))), true
	case tensor.FP32:
		return float64(math.Float32frombits(le.Uint32(b))), true
	case tensor.FP64:
		return math.Float64frombits(le.Uint64(b)), true
	}
	return 0, false
}
