package grpcapi

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/tensor"
)

// carrier is the data type of each field of InferTensorContents, by number. A field for several types has the
// widest.
var carrier = [...]tensor.DType{
	1: tensor.Bool, 2: tensor.Int32, 3: tensor.Int64, 4: tensor.Uint32,
	5: tensor.Uint64, 6: tensor.FP32, 7: tensor.FP64, 8: tensor.Bytes,
}

// fieldOf returns the field number for a type's elements, or 0 if there is none.
func fieldOf(d tensor.DType) protowire.Number {
	switch d {
	case tensor.Bool:
		return 1
	case tensor.Int8, tensor.Int16, tensor.Int32:
		return 2
	case tensor.Int64:
		return 3
	case tensor.Uint8, tensor.Uint16, tensor.Uint32:
		return 4
	case tensor.Uint64:
		return 5
	case tensor.FP32:
		return 6
	case tensor.FP64:
		return 7
	case tensor.Bytes:
		return 8
	default:
		return 0
	}
}

// counts has the number of elements in each field of typed contents, and the size of BYTES elements with their
// lengths.
type counts struct {
	n     [len(carrier)]int
	bytes int
}

// wireSize returns the bytes of an element on the wire, if that is fixed.
func wireSize(num protowire.Number) int {
	switch num {
	case 6:
		return 4
	case 7:
		return 8
	default:
		return 0
	}
}

// countContents validates and counts InferTensorContents.
//
// hot: no allocation.
func countContents(b []byte) (c counts, err error) {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num < 1 || int(f.num) >= len(carrier):
			f.skip()
		case f.typ == protowire.BytesType && f.num == 8:
			c.n[8]++
			c.bytes += tensor.EncodedLen(len(f.bytes()))
		case f.typ == protowire.BytesType:
			c.packed(&f)
		case f.typ == elementType(f.num):
			c.n[f.num]++
			f.skip()
		default:
			f.skip()
		}
	}
	return c, f.err
}

// elementType is the wire type of one element outside a packed list.
func elementType(num protowire.Number) protowire.Type {
	switch num {
	case 6:
		return protowire.Fixed32Type
	case 7:
		return protowire.Fixed64Type
	case 8:
		return protowire.BytesType
	default:
		return protowire.VarintType
	}
}

func (c *counts) packed(f *fields) {
	num, list := f.num, fields{rest: f.bytes()}
	if size := wireSize(num); size > 0 {
		if len(list.rest)%size != 0 {
			f.err = errWire
		}
		c.n[num] += len(list.rest) / size
		return
	}
	for len(list.rest) > 0 && list.err == nil {
		list.varint()
		c.n[num]++
	}
	f.err = firstError(f.err, list.err)
}

// fillContents writes the elements of t's field into t, which must have room for exactly them. countContents must
// have validated b.
//
// hot: no allocation.
func fillContents(b []byte, t *tensor.Tensor) {
	num, dst := fieldOf(t.DType), t.Bytes()
	size := t.DType.Size()
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num != num:
			f.skip()
		case num == 8 && f.typ == protowire.BytesType:
			e := f.bytes()
			binary.LittleEndian.PutUint32(dst, uint32(len(e)))
			dst = dst[4+copy(dst[4:], e):]
		case f.typ == protowire.BytesType && wireSize(num) > 0:
			dst = dst[copy(dst, f.bytes()):]
		case f.typ == protowire.BytesType:
			list := fields{rest: f.bytes()}
			for len(list.rest) > 0 {
				dst = appendElement(dst, t.DType, size, list.varint())
			}
		case f.typ == elementType(num) && num == 6:
			v, n := protowire.ConsumeFixed32(f.rest)
			f.take(n)
			dst = appendElement(dst, t.DType, size, uint64(v))
		case f.typ == elementType(num) && num == 7:
			dst = appendElement(dst, t.DType, size, f.fixed64())
		case f.typ == elementType(num):
			dst = appendElement(dst, t.DType, size, f.varint())
		default:
			f.skip()
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
