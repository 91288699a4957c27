package exec

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// adapt returns the tensor that an adapter makes of its input. The input stays the caller's.
func (r *run) adapt(node *plan.Node, in *tensor.Tensor) (tensor.Tensor, error) {
	a := node.Operation.Adapter
	if !in.Present() {
		return tensor.Tensor{}, nil
	}
	if in.DType != a.From {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "tensor '%s' is of type %s, expected %s", node.Signature.Inputs[0].Name, in.DType, a.From)
	}
	shape, err := adaptedShape(node, in.Shape)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if a.Layout == plan.SameLayout && a.From == a.To {
		out := in.Move()
		out.Shape = shape
		return out, nil
	}
	out, err := tensor.New(r.x.alloc, a.To, shape)
	if err != nil {
		return out, status.Errorf(status.Unavailable, "tensor '%s': %w", node.Signature.Outputs[0].Name, err)
	}
	convert := converters[[2]tensor.DType{a.From, a.To}]
	size := a.From.Size()
	if convert == nil {
		convert = func(dst, src []byte) { copy(dst, src) }
	}
	if a.Layout == plan.SameLayout {
		convert(out.Bytes(), in.Bytes())
		return out, nil
	}
	turn(out.Bytes(), in.Bytes(), imageOf(in.Shape, a), a, size, convert)
	return out, nil
}

// adaptedShape returns the shape of the result.
func adaptedShape(node *plan.Node, s tensor.Shape) (tensor.Shape, error) {
	a, lead := node.Operation.Adapter, 0
	if node.Signature.MaxBatch > 0 {
		lead = 1
	}
	wrong := func(want string) error {
		return status.Errorf(status.InvalidArg, "tensor '%s' has the shape %s, expected %s", node.Signature.Inputs[0].Name, s, want)
	}
	dims := append([]int64{}, s.Dims()...)
	if a.Drop {
		if len(dims) <= lead || dims[lead] != 1 {
			return s, wrong("a dimension of 1 at position " + string(rune('0'+lead)))
		}
		dims = append(dims[:lead:lead], dims[lead+1:]...)
	}
	if a.Layout != plan.SameLayout {
		if len(dims) != lead+3 {
			return s, wrong("three dimensions of an image")
		}
		x, y, z := dims[lead], dims[lead+1], dims[lead+2]
		if a.Layout == plan.ToNCHW {
			x, y, z = z, x, y
		} else {
			x, y, z = y, z, x
		}
		dims[lead], dims[lead+1], dims[lead+2] = x, y, z
	}
	if a.Add {
		dims = append(dims[:lead:lead], append([]int64{1}, dims[lead:]...)...)
	}
	return tensor.Of(dims...), nil
}

// imageSize is the extents of images: how many there are, and in each the groups and the elements of a group. Turning the layout
// transposes them.
type imageSize struct{ n, rows, columns int }

func imageOf(s tensor.Shape, a *plan.Adapter) imageSize {
	d := s.Dims()
	d, before := d[len(d)-3:], d[:len(d)-3]
	i := imageSize{n: 1, rows: int(d[0] * d[1]), columns: int(d[2])}
	if a.Layout == plan.ToNHWC {
		i.rows, i.columns = int(d[0]), int(d[1]*d[2])
	}
	for _, x := range before {
		i.n *= int(x)
	}
	return i
}

// turn transposes the matrices of images, and converts their elements a row at a time.
func turn(dst, src []byte, i imageSize, a *plan.Adapter, size int, convert func(dst, src []byte)) {
	to := a.To.Size()
	row := make([]byte, i.columns*to)
	for m := range i.n {
		from := src[m*i.rows*i.columns*size:]
		into := dst[m*i.rows*i.columns*to:]
		for y := range i.rows {
			convert(row, from[y*i.columns*size:(y+1)*i.columns*size])
			for x := range i.columns {
				copy(into[(x*i.rows+y)*to:(x*i.rows+y+1)*to], row[x*to:(x+1)*to])
			}
		}
	}
}

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// get reads and put writes one little-endian element.
type (
	getter[S number] func(b []byte) S
	putter[D number] func(b []byte, v D)
)

// widen returns a function that converts elements of from bytes to elements of to bytes.
func widen[S, D number](from, to int, get getter[S], put putter[D]) func(dst, src []byte) {
	return func(dst, src []byte) {
		for ; len(src) > 0; dst, src = dst[to:], src[from:] {
			put(dst, D(get(src)))
		}
	}
}

func getI8(b []byte) int8      { return int8(b[0]) } //nolint:gosec // the same bits
func getU8(b []byte) uint8     { return b[0] }
func getI16(b []byte) int16    { return int16(binary.LittleEndian.Uint16(b)) } //nolint:gosec // the same bits
func getU16(b []byte) uint16   { return binary.LittleEndian.Uint16(b) }
func getI32(b []byte) int32    { return int32(binary.LittleEndian.Uint32(b)) } //nolint:gosec // the same bits
func getU32(b []byte) uint32   { return binary.LittleEndian.Uint32(b) }
func getF16(b []byte) float32  { return tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)) }
func getBF16(b []byte) float32 { return tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)) }
func getF32(b []byte) float32  { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func putI16(b []byte, v int16)   { binary.LittleEndian.PutUint16(b, uint16(v)) } //nolint:gosec // the same bits
func putU16(b []byte, v uint16)  { binary.LittleEndian.PutUint16(b, v) }
func putI32(b []byte, v int32)   { binary.LittleEndian.PutUint32(b, uint32(v)) } //nolint:gosec // the same bits
func putU32(b []byte, v uint32)  { binary.LittleEndian.PutUint32(b, v) }
func putI64(b []byte, v int64)   { binary.LittleEndian.PutUint64(b, uint64(v)) } //nolint:gosec // the same bits
func putU64(b []byte, v uint64)  { binary.LittleEndian.PutUint64(b, v) }
func putF32(b []byte, v float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(v)) }
func putF64(b []byte, v float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(v)) }

// converters are the functions of the conversions that lose nothing; plan lists the same ones.
var converters = map[[2]tensor.DType]func(dst, src []byte){
	{tensor.Int8, tensor.Int16}: widen(1, 2, getI8, putI16), {tensor.Int8, tensor.Int32}: widen(1, 4, getI8, putI32),
	{tensor.Int8, tensor.Int64}: widen(1, 8, getI8, putI64), {tensor.Int8, tensor.FP32}: widen(1, 4, getI8, putF32),
	{tensor.Int8, tensor.FP64}:   widen(1, 8, getI8, putF64),
	{tensor.Int16, tensor.Int32}: widen(2, 4, getI16, putI32), {tensor.Int16, tensor.Int64}: widen(2, 8, getI16, putI64),
	{tensor.Int16, tensor.FP32}: widen(2, 4, getI16, putF32), {tensor.Int16, tensor.FP64}: widen(2, 8, getI16, putF64),
	{tensor.Int32, tensor.Int64}: widen(4, 8, getI32, putI64), {tensor.Int32, tensor.FP64}: widen(4, 8, getI32, putF64),
	{tensor.Uint8, tensor.Uint16}: widen(1, 2, getU8, putU16), {tensor.Uint8, tensor.Uint32}: widen(1, 4, getU8, putU32),
	{tensor.Uint8, tensor.Uint64}: widen(1, 8, getU8, putU64), {tensor.Uint8, tensor.Int16}: widen(1, 2, getU8, putI16),
	{tensor.Uint8, tensor.Int32}: widen(1, 4, getU8, putI32), {tensor.Uint8, tensor.Int64}: widen(1, 8, getU8, putI64),
	{tensor.Uint8, tensor.FP32}: widen(1, 4, getU8, putF32), {tensor.Uint8, tensor.FP64}: widen(1, 8, getU8, putF64),
	{tensor.Uint16, tensor.Uint32}: widen(2, 4, getU16, putU32), {tensor.Uint16, tensor.Uint64}: widen(2, 8, getU16, putU64),
	{tensor.Uint16, tensor.Int32}: widen(2, 4, getU16, putI32), {tensor.Uint16, tensor.Int64}: widen(2, 8, getU16, putI64),
	{tensor.Uint16, tensor.FP32}: widen(2, 4, getU16, putF32), {tensor.Uint16, tensor.FP64}: widen(2, 8, getU16, putF64),
	{tensor.Uint32, tensor.Uint64}: widen(4, 8, getU32, putU64), {tensor.Uint32, tensor.Int64}: widen(4, 8, getU32, putI64),
	{tensor.Uint32, tensor.FP64}: widen(4, 8, getU32, putF64),
	{tensor.FP16, tensor.FP32}:   widen(2, 4, getF16, putF32), {tensor.FP16, tensor.FP64}: widen(2, 8, getF16, putF64),
	{tensor.BF16, tensor.FP32}: widen(2, 4, getBF16, putF32), {tensor.BF16, tensor.FP64}: widen(2, 8, getBF16, putF64),
	{tensor.FP32, tensor.FP64}: widen(4, 8, getF32, putF64),
}
