package python

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// reader decodes bytes of a worker, which are not trusted: past the end it returns zeros and sets bad.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b)-r.at {
		r.bad = true
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() string { return string(r.take(int(r.u32()))) }

// params decodes parameters and appends them to list.
func (r *reader) params(list infer.Params) infer.Params {
	for range r.u16() {
		if r.bad {
			break
		}
		p := infer.Param{Key: r.text()}
		switch kind := r.u8(); kind {
		case 0:
			p.Kind, p.Bool = infer.ParamBool, r.u64() != 0
		case 1:
			p.Kind, p.Int = infer.ParamInt, int64(r.u64())
		case 2:
			p.Kind, p.Uint = infer.ParamUint, r.u64()
		case 3:
			p.Kind, p.Double = infer.ParamDouble, math.Float64frombits(r.u64())
		case 4:
			p.Kind, p.String = infer.ParamString, r.text()
		default:
			r.bad = true
		}
		list = append(list, p)
	}
	return list
}

// part is the description of a tensor.
type part struct {
	index     uint16
	dtype     tensor.DType
	shape     tensor.Shape
	off, size uint64
}

// named is the index of a tensor whose name is in the extra part.
const named = math.MaxUint16

func (r *reader) part() (p part) {
	p.index = r.u16()
	p.dtype = tensor.DType(r.u8())
	rank := int(r.u8())
	r.u32()
	p.off, p.size = r.u64(), r.u64()
	var few [8]int64
	dims := few[:0]
	for range rank {
		if r.bad {
			break
		}
		dims = append(dims, int64(r.u64()))
	}
	p.shape = tensor.Of(dims...)
	return p
}

// valid reports whether a tensor lies within memory of n bytes and its size matches its type and shape.
func (p *part) valid(n int) bool {
	if p.size > uint64(n) || p.off > uint64(n)-p.size {
		return false
	}
	elements, each := p.shape.Elements(), uint64(p.dtype.Size())
	if elements < 0 || p.dtype.String() == tensor.Invalid.String() {
		return false
	}
	if p.dtype == tensor.Bytes {
		return uint64(elements) <= p.size/4
	}
	return uint64(elements) <= p.size && uint64(elements)*each == p.size
}

// codeOf returns the status code of a number, and Internal for an unknown one.
func codeOf(b uint8) status.Code {
	if c := status.Code(b); c <= status.Cancelled {
		return c
	}
	return status.Internal
}
