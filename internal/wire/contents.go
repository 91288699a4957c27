package wire

import (
	"cmp"
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/tensor"
)

// ContentFields describes the fields of InferTensorContents, by number.
var ContentFields = [...]struct {
	DType tensor.DType   // the widest of its types
	typ   protowire.Type // of one element outside a packed list
	size  int            // bytes of an element on the wire, if that is fixed
}{
	1: {tensor.Bool, protowire.VarintType, 0},
	2: {tensor.Int32, protowire.VarintType, 0},
	3: {tensor.Int64, protowire.VarintType, 0},
	4: {tensor.Uint32, protowire.VarintType, 0},
	5: {tensor.Uint64, protowire.VarintType, 0},
	6: {tensor.FP32, protowire.Fixed32Type, 4},
	7: {tensor.FP64, protowire.Fixed64Type, 8},
	8: {tensor.Bytes, protowire.BytesType, 0},
}

// FieldOf has the field number for each type's elements, or 0 if there is none.
var FieldOf = [tensor.BF16 + 1]protowire.Number{
	tensor.Bool: 1, tensor.Int8: 2, tensor.Int16: 2, tensor.Int32: 2, tensor.Int64: 3, tensor.Uint8: 4, tensor.Uint16: 4,
	tensor.Uint32: 4, tensor.Uint64: 5, tensor.FP32: 6, tensor.FP64: 7, tensor.Bytes: 8,
}

// Counts has the number of elements in each field of typed contents, and the size of BYTES elements with their
// lengths.
type Counts struct {
	N     [len(ContentFields)]int
	Bytes int
}

// CountContents validates and counts InferTensorContents.
//
// hot: no allocation.
func CountContents(b []byte) (c Counts, err error) {
	f := Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Num < 1 || int(f.Num) >= len(ContentFields):
			f.Skip()
		case f.Type == protowire.BytesType && f.Num == 8:
			c.N[8]++
			c.Bytes += tensor.EncodedLen(len(f.Bytes()))
		case f.Type == protowire.BytesType:
			list := Fields{Rest: f.Bytes()}
			if size := ContentFields[f.Num].size; size > 0 {
				if len(list.Rest)%size != 0 {
					f.Err = ErrMalformed
				}
				c.N[f.Num] += len(list.Rest) / size
				continue
			}
			for len(list.Rest) > 0 && list.Err == nil {
				list.Varint()
				c.N[f.Num]++
			}
			f.Err = cmp.Or(f.Err, list.Err)
		case f.Type == ContentFields[f.Num].typ:
			c.N[f.Num]++
			f.Skip()
		default:
			f.Skip()
		}
	}
	return c, f.Err
}

// FillContents writes the elements of t's field into t, which must have room for exactly them. CountContents must
// have validated b.
//
// hot: no allocation.
func FillContents(b []byte, t *tensor.Tensor) {
	num, dst, size := FieldOf[t.DType], t.Bytes(), t.DType.Size()
	one := ContentFields[num]
	f := Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Num != num:
			f.Skip()
		case num == 8 && f.Type == one.typ:
			e := f.Bytes()
			binary.LittleEndian.PutUint32(dst, uint32(len(e)))
			dst = dst[4+copy(dst[4:], e):]
		case f.Type == protowire.BytesType && one.size > 0:
			dst = dst[copy(dst, f.Bytes()):]
		case f.Type == protowire.BytesType:
			list := Fields{Rest: f.Bytes()}
			for len(list.Rest) > 0 {
				dst = appendElement(dst, t.DType, size, list.Varint())
			}
		case f.Type == one.typ && one.size > 0:
			dst = dst[copy(dst, f.Rest[:one.size]):]
			f.take(one.size)
		case f.Type == one.typ:
			dst = appendElement(dst, t.DType, size, f.Varint())
		default:
			f.Skip()
		}
	}
}

// appendElement writes one element and returns the memory after it. A number that is too large keeps its low bytes,
// as in Triton.
func appendElement(dst []byte, d tensor.DType, size int, v uint64) []byte {
	switch size {
	case 1:
		if d == tensor.Bool {
			v = min(v, 1)
		}
		dst[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(v&math.MaxUint16))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(v&math.MaxUint32))
	default:
		binary.LittleEndian.PutUint64(dst, v)
	}
	return dst[size:]
}
