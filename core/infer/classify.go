package infer

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
)

// maxClassified bounds the elements of one classified row, as in Triton.
const maxClassified = 1_000_000

// Classify returns the n best classes of an output as a new BYTES tensor. Its elements are "value:index", with the
// suffix ":label" where labels has one for the index; for example "0.930000:281:tabby". It borrows t, which must be
// in host memory.
//
// All dimensions but the batch form one row. The result has the shape [batch, min(n, elements)], without the batch
// for a tensor that has none. Values are sorted from the highest to the lowest, equal ones by index, NaN last. They
// are formatted as in C: integers as %d, others with six digits after the point.
//
// FP16 and BF16 are supported, which Triton refuses. BOOL and BYTES have no order and are InvalidArg. The caller
// must refuse n below 1; here it returns no classes.
//
// hot: no allocation in steady state but the result's.
func Classify(a tensor.Allocator, t *tensor.Tensor, batched bool, n int, labels []string) (tensor.Tensor, error) {
	if t.DType == tensor.Bool || t.DType.Size() == 0 {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg,
			"class result not available for output due to unsupported type '%s'", t.DType)
	}
	shape, batch, elements := t.Shape, 1, t.Shape.Elements()
	batched = batched && shape.Rank() > 0
	if batched {
		batch, elements = int(shape.Dim(0)), shape.Tail().Elements()
	}
	if elements > maxClassified {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "classification output tensor too large")
	}
	row := int(elements) * t.DType.Size()
	if batch < 0 || elements < 0 || (batch > 0 && t.Len/batch != row) {
		return tensor.Tensor{}, status.Errorf(status.Internal,
			"cannot classify an output of shape %s: it has %d bytes", shape, t.Len)
	}
	n = max(0, min(n, int(elements)))
	if shape = tensor.Of(int64(n)); batched {
		shape = tensor.Of(int64(batch), int64(n))
	}
	c := classifiers.Get()
	defer classifiers.Put(c)
	c.text = c.text[:0]
	if n > 0 {
		for i := range batch {
			c.row(t.DType, t.Bytes()[i*row:(i+1)*row], n, labels)
		}
	}
	out, err := tensor.NewBytes(a, shape, len(c.text))
	if err == nil {
		copy(out.Bytes(), c.text)
	}
	return out, err
}

// Classify replaces the named output by its n best classes, with the labels of the model.
func (d *Description) Classify(a tensor.Allocator, output string, t *tensor.Tensor, n int) error {
	var labels []string
	if port := d.Output(output); port != nil {
		labels = port.Labels
	}
	top, err := Classify(a, t, d.MaxBatch > 0, n, labels)
	if err == nil {
		t.Release()
		*t = top
	}
	return err
}

// classifier ranks a row's elements. It reuses its slices for the next row.
type classifier struct {
	ints   []int64
	uints  []uint64
	floats []float64
	order  []int32
	elem   []byte
	text   []byte
}

var classifiers pool.Of[classifier]

// row appends the n best classes of a row to the text.
func (c *classifier) row(d tensor.DType, b []byte, n int, labels []string) {
	switch d {
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		c.uints = decode(c.uints[:0], b, d.Size(), readUint)
		c.order = best(c.order, c.uints, n)
	case tensor.FP16:
		c.floats = decode(c.floats[:0], b, d.Size(), readFP16)
		c.order = best(c.order, c.floats, n)
	case tensor.BF16:
		c.floats = decode(c.floats[:0], b, d.Size(), readBF16)
		c.order = best(c.order, c.floats, n)
	case tensor.FP32, tensor.FP64:
		c.floats = decode(c.floats[:0], b, d.Size(), readFloat)
		c.order = best(c.order, c.floats, n)
	default:
		c.ints = decode(c.ints[:0], b, d.Size(), readInt)
		c.order = best(c.order, c.ints, n)
	}
	for _, i := range c.order {
		c.elem = c.value(c.elem[:0], d, i)
		c.elem = strconv.AppendInt(append(c.elem, ':'), int64(i), 10)
		if int(i) < len(labels) && labels[i] != "" {
			c.elem = append(append(c.elem, ':'), labels[i]...)
		}
		c.text = tensor.AppendBytes(c.text, c.elem)
	}
}

// value appends element i of the decoded row, formatted as C's %d, %u or %f.
func (c *classifier) value(dst []byte, d tensor.DType, i int32) []byte {
	switch d {
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return strconv.AppendUint(dst, c.uints[i], 10)
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return appendFixed(dst, c.floats[i])
	default:
		return strconv.AppendInt(dst, c.ints[i], 10)
	}
}

// few is the number of classes up to which the best ones are sorted while a row is read; for more it is cheaper to
// sort the row.
const few = 16

// best returns the indices of the n highest values, highest first, in order's memory.
func best[T cmp.Ordered](order []int32, vals []T, n int) []int32 {
	after := func(i, j int32) int {
		return cmp.Or(cmp.Compare(vals[j], vals[i]), cmp.Compare(i, j))
	}
	order = order[:0]
	if n > few {
		for i := range vals {
			order = append(order, int32(i))
		}
		slices.SortFunc(order, after)
		return order[:n]
	}
	for i := range vals {
		at := len(order)
		for at > 0 && cmp.Less(vals[order[at-1]], vals[i]) {
			at--
		}
		if at == n {
			continue
		}
		if len(order) == n {
			order = order[:n-1]
		}
		order = slices.Insert(order, at, int32(i))
	}
	return order
}

// decode appends b's elements of size bytes, each as read understands it.
func decode[T any](dst []T, b []byte, size int, read func([]byte) T) []T {
	for ; len(b) >= size; b = b[size:] {
		dst = append(dst, read(b[:size]))
	}
	return dst
}

func readUint(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	default:
		return binary.LittleEndian.Uint64(b)
	}
}

func readInt(b []byte) int64 {
	unused := 64 - 8*len(b)
	return int64(readUint(b)<<unused) >> unused
}

func readFloat(b []byte) float64 {
	if len(b) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func readBF16(b []byte) float64 { return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b))) }

func readFP16(b []byte) float64 { return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b))) }

// appendFixed appends v as C's %f prints it.
func appendFixed(dst []byte, v float64) []byte {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		return strconv.AppendFloat(dst, v, 'f', 6, 64)
	}
	if math.Signbit(v) {
		dst = append(dst, '-')
	}
	if math.IsNaN(v) {
		return append(dst, "nan"...)
	}
	return append(dst, "inf"...)
}
