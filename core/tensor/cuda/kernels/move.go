//go:build cgo

package kernels

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

// most is the parts that one launch of join_rows joins.
const most = 8

// Join implements compute.Kernels. It takes one launch for each 8 parts.
//
// hot: no allocation.
func (k *Set) Join(s tensor.Stream, j *compute.Join) error {
	if j.To == 0 {
		return nil
	}
	unit, off := alignment(j), j.Off
	fill := uint64(0)
	if n := len(j.Elem); n > 0 {
		var word [8]byte
		for i := range word {
			word[i] = j.Elem[i%n]
		}
		fill = binary.LittleEndian.Uint64(word[:])
	}
	for parts := j.Parts; len(parts) > 0; {
		some := parts[:min(most, len(parts))]
		parts = parts[len(some):]
		var a cuda.Args
		a.Buffer(j.Dst, off)
		for i := range most { // unused sources have no rows
			p := &some[min(i, len(some)-1)]
			a.Buffer(p.Buf, p.Off)
		}
		rows := 0
		for i := range most {
			n := int64(0)
			if i < len(some) {
				n = int64(some[i].Rows)<<32 | int64(min(some[i].Len/unit, math.MaxUint32))
				rows += some[i].Rows
			}
			a.Long(n)
		}
		n := rows * (j.To / unit)
		a.Long(int64(j.To / unit)).Long(int64(n)).Long(int64(fill)).Int(unit)
		if err := k.each(s, "join_rows", n, &a); err != nil {
			return err
		}
		off += rows * j.To
	}
	return nil
}

// alignment returns the largest of 8, 4, 2 and 1 bytes that every address and length is a multiple of.
func alignment(j *compute.Join) int {
	bits := j.Off | j.To | int(uintptr(j.Dst.Pointer())&7) | 8
	for i := range j.Parts {
		p := &j.Parts[i]
		bits |= p.Len | p.Off | int(uintptr(p.Buf.Pointer())&7)
	}
	return bits & -bits
}

// loops is the number of loops of the kernel spread.
const loops = 5

// Spread implements compute.Kernels. A nest of more than 5 loops takes a launch for each iteration of the outer ones.
func (k *Set) Spread(s tensor.Stream, dst, src *tensor.Tensor, n *compute.Nest) error {
	if n.Rank > loops {
		inner := *n
		inner.Rank--
		copy(inner.Size[:], n.Size[1:])
		copy(inner.Read[:], n.Read[1:])
		copy(inner.Write[:], n.Write[1:])
		for range n.Size[0] {
			if err := k.Spread(s, dst, src, &inner); err != nil {
				return err
			}
			inner.From += n.Read[0]
			inner.To += n.Write[0]
		}
		return nil
	}
	var z, f, t [loops]int64
	count, missing := 1, loops-n.Rank
	for i := range loops {
		if z[i] = 1; i >= missing {
			z[i], f[i], t[i] = int64(n.Size[i-missing]), int64(n.Read[i-missing]), int64(n.Write[i-missing])
		}
		count *= int(z[i])
	}
	var a cuda.Args
	buffer(buffer(&a, src), dst).Long(int64(count)).Int(dst.DType.Size())
	for _, v := range [...][]int64{z[1:], f[:], t[:]} {
		for _, x := range v {
			a.Long(x)
		}
	}
	return k.each(s, "spread", count, a.Long(int64(n.From)).Long(int64(n.To)))
}

// types numbers the element types as kernels.cu does.
var types = [...]int{
	tensor.Bool: 0, tensor.Int8: 1, tensor.Int16: 2, tensor.Int32: 3, tensor.Int64: 4,
	tensor.Uint8: 5, tensor.Uint16: 6, tensor.Uint32: 7, tensor.Uint64: 8,
	tensor.FP16: 9, tensor.BF16: 10, tensor.FP32: 11, tensor.FP64: 12,
}

// Cast implements compute.Kernels.
func (k *Set) Cast(s tensor.Stream, dst, src *tensor.Tensor, saturate bool) error {
	var a cuda.Args
	n := int(src.Shape.Elements())
	buffer(buffer(&a, src), dst).Long(int64(n)).Int(types[src.DType]).Int(types[dst.DType]).Int(flag(saturate))
	return k.each(s, "cast", n, &a)
}
