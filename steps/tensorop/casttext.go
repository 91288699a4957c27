package tensorop

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// parse converts texts to numbers. A text that is not a number of the type fails its row.
func (c *caster) parse(b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, c.to, in.Shape)
	if err != nil {
		return err
	}
	n, rows := int(in.Shape.Elements()), rowsOf(in, c.batch)
	rest := in.Bytes()
	for i := range n {
		elem, after, ok := tensor.NextBytes(rest)
		if !ok {
			return status.Errorf(status.Internal, "an input ends inside an element")
		}
		rest = after
		if err := setText(out, i, elem); err != nil {
			b.Fail(i/(n/rows), status.Errorf(status.InvalidArg, "an element of row %d is %.40q, expected a number of type %s", i/(n/rows), elem, c.to))
		}
	}
	return nil
}

// setText parses text as element i of out. An element that cannot be parsed is set to 0.
func setText(out *tensor.Tensor, i int, text []byte) error {
	size := out.DType.Size()
	elem := out.Bytes()[i*size : (i+1)*size]
	s := unsafe.String(unsafe.SliceData(text), len(text)) // used during the call only
	var bits uint64
	var err error
	switch out.DType {
	case tensor.Bool:
		var yes bool
		yes, err = strconv.ParseBool(s)
		bits = uint64(truth(yes))
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		width := 32
		if out.DType != tensor.FP32 {
			width = 64
		}
		var f float64
		f, err = strconv.ParseFloat(s, width)
		bits = floatBits(f, out.DType)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits, err = strconv.ParseUint(s, 10, 8*size)
	default:
		var n int64
		n, err = strconv.ParseInt(s, 10, 8*size)
		bits = uint64(n)
	}
	if err != nil {
		bits = 0
	}
	putBits(elem, bits)
	return err
}

// putBits writes an element, least significant byte first.
func putBits(elem []byte, bits uint64) {
	for i := range elem {
		elem[i] = byte(bits >> (8 * i))
	}
}

// floatBits returns the bits of f in a floating-point type, rounded to nearest.
func floatBits(f float64, d tensor.DType) uint64 {
	switch d {
	case tensor.FP16:
		return uint64(tensor.Float32ToFP16(narrowed(f)))
	case tensor.BF16:
		return uint64(tensor.Float32ToBF16(narrowed(f)))
	case tensor.FP32:
		return uint64(math.Float32bits(float32(f)))
	default:
		return math.Float64bits(f)
	}
}

// format converts numbers to the shortest text that parses to the same number. For example, FP32 0.1 is "0.1".
func (*caster) format(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	out := x.text[:0]
	for i := range int(in.Shape.Elements()) {
		start := len(out)
		out = append(out, 0, 0, 0, 0)
		out = appendElement(out, in, i)
		putBits(out[start:start+4], uint64(len(out)-start-4))
	}
	x.text = out
	t, err := b.AllocBytes(0, in.Shape, len(out))
	if err != nil {
		return err
	}
	copy(t.Bytes(), out)
	return nil
}

// appendElement appends element i as text.
func appendElement(dst []byte, t *tensor.Tensor, i int) []byte {
	size := t.DType.Size()
	var bits uint64
	for k, v := range t.Bytes()[i*size : (i+1)*size] {
		bits |= uint64(v) << (8 * k)
	}
	switch t.DType {
	case tensor.Bool:
		return strconv.AppendBool(dst, bits != 0)
	case tensor.FP16:
		return strconv.AppendFloat(dst, float64(tensor.FP16ToFloat32(uint16(bits))), 'g', -1, 32)
	case tensor.BF16:
		return strconv.AppendFloat(dst, float64(tensor.BF16ToFloat32(uint16(bits))), 'g', -1, 32)
	case tensor.FP32:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(bits))), 'g', -1, 32)
	case tensor.FP64:
		return strconv.AppendFloat(dst, math.Float64frombits(bits), 'g', -1, 64)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return strconv.AppendUint(dst, bits, 10)
	default:
		shift := 64 - 8*size
		return strconv.AppendInt(dst, int64(bits<<shift)>>shift, 10)
	}
}
