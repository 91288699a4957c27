package capture

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
)

// Bounds of a preview.
const (
	maxValues  = 64
	maxText    = 1 << 10
	maxTop     = 5
	maxCounted = 1 << 20
	maxImages  = 16
)

// previewer makes the previews of a request. It limits the number of images.
type previewer struct{ images int }

// preview returns the preview of a tensor's content.
func (p *previewer) preview(x *capturedTensor) *inspect.PreviewView {
	if p.images > 0 {
		if v := imagePreview(x); v != nil {
			p.images--
			return v
		}
	}
	if x.dtype == tensor.Bytes {
		return textPreview(x)
	}
	return numberPreview(x)
}

// textPreview returns the preview of a BYTES tensor.
func textPreview(x *capturedTensor) *inspect.PreviewView {
	v := &inspect.PreviewView{Kind: "text", Values: []string{}}
	b, count := x.data, int64(0)
	for len(b) > 0 {
		elem, rest, ok := tensor.NextBytes(b)
		if !ok {
			break
		}
		if b = rest; count < maxValues {
			v.Values = append(v.Values, printable(elem))
		}
		count++
	}
	v.More = count - int64(len(v.Values))
	return v
}

// printable returns an element as text. An element with control characters is quoted.
func printable(elem []byte) string {
	cut := elem[:min(len(elem), maxText)]
	text := strings.ToValidUTF8(string(cut), "\uFFFD")
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }) {
		text = strconv.QuoteToASCII(string(cut))
	}
	if len(cut) < len(elem) {
		text += "…"
	}
	return text
}

// numberPreview returns the preview of a numeric tensor: the first values, and statistics of all.
func numberPreview(x *capturedTensor) *inspect.PreviewView {
	v := &inspect.PreviewView{Kind: "numbers", Values: []string{}}
	size := x.dtype.Size()
	if size == 0 {
		return v
	}
	total := len(x.data) / size
	for i := range min(total, maxValues) {
		v.Values = append(v.Values, valueText(x, i))
	}
	v.More = int64(total - len(v.Values))
	low, high, sum, finite := math.Inf(1), math.Inf(-1), 0.0, 0
	seen := min(total, maxCounted)
	for i := range seen {
		f := valueOf(x, i)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		low, high = min(low, f), max(high, f)
		sum += f
		finite++
	}
	v.Odd = int64(seen - finite)
	if finite > 0 {
		v.Min, v.Max, v.Mean = short(low), short(high), short(sum/float64(finite))
	}
	if rank := x.shape.Rank(); rank > 0 && x.dtype.Size() > 1 {
		v.Top = top(x, min(int64(seen), x.shape.Dim(rank-1)))
	}
	return v
}

// top returns the largest of the first n numbers.
func top(x *capturedTensor, n int64) (list []inspect.TopView) {
	if n < 2 {
		return nil
	}
	var best []int
	for i := range int(n) {
		f := valueOf(x, i)
		if math.IsNaN(f) || len(best) == maxTop && f <= valueOf(x, best[maxTop-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, f, func(j int, f float64) int {
			if valueOf(x, j) == f {
				return -1 // the first one stays first
			}
			return cmp.Compare(f, valueOf(x, j))
		})
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), maxTop)]
	}
	for _, i := range best {
		list = append(list, inspect.TopView{Index: i, Value: valueText(x, i)})
	}
	return list
}

func short(f float64) string { return strconv.FormatFloat(f, 'g', 7, 64) }

// valueOf returns number i; numbers of 64 bits may lose precision.
func valueOf(x *capturedTensor, i int) float64 {
	b := x.data[i*x.dtype.Size():]
	switch x.dtype { //nolint:exhaustive // the others are whole
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	n, signed := whole(x.dtype, b)
	if signed {
		return float64(int64(n)) //nolint:gosec // it was one
	}
	return float64(n)
}

// whole returns an integer; signed reports whether n is a signed one.
func whole(d tensor.DType, b []byte) (n uint64, signed bool) {
	switch d { //nolint:exhaustive // the others are not whole
	case tensor.Int8:
		return uint64(int64(int8(b[0]))), true //nolint:gosec // the bits stay
	case tensor.Int16:
		return uint64(int64(int16(binary.LittleEndian.Uint16(b)))), true //nolint:gosec // the bits stay
	case tensor.Int32:
		return uint64(int64(int32(binary.LittleEndian.Uint32(b)))), true //nolint:gosec // the bits stay
	case tensor.Int64:
		return binary.LittleEndian.Uint64(b), true
	case tensor.Uint16:
		return uint64(binary.LittleEndian.Uint16(b)), false
	case tensor.Uint32:
		return uint64(binary.LittleEndian.Uint32(b)), false
	case tensor.Uint64:
		return binary.LittleEndian.Uint64(b), false
	}
	return uint64(b[0]), false
}

// valueText returns number i as text.
func valueText(x *capturedTensor, i int) string {
	b := x.data[i*x.dtype.Size():]
	switch x.dtype { //nolint:exhaustive // the others are whole
	case tensor.Bool:
		return strconv.FormatBool(b[0] != 0)
	case tensor.FP16, tensor.BF16, tensor.FP32:
		return strconv.FormatFloat(valueOf(x, i), 'g', -1, 32)
	case tensor.FP64:
		return strconv.FormatFloat(valueOf(x, i), 'g', -1, 64)
	}
	n, signed := whole(x.dtype, b)
	if signed {
		return strconv.FormatInt(int64(n), 10) //nolint:gosec // it was one
	}
	return strconv.FormatUint(n, 10)
}
