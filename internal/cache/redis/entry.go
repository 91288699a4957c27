package redis

import (
	"encoding/binary"
	"errors"

	"github.com/tutti-server/tutti/core/tensor"
)

// An entry is the magic byte and the number of tensors, then each one: 0 when it is absent, else 1, its type, rank,
// extents, length and bytes. Numbers are little-endian; counts of dimensions are bytes, extents and lengths have 8.
const (
	magic   = 0xC1
	absent  = 0
	present = 1
	maxRank = 255
)

var errEntry = errors.New("not an entry of a response cache")

// encode returns the entry of out. It returns false when out has more tensors or dimensions than an entry can hold.
func encode(out []tensor.Tensor) ([]byte, bool) {
	n := 2
	for i := range out {
		n += 11 + 8*out[i].Shape.Rank() + out[i].Len
	}
	b := append(make([]byte, 0, n), magic, byte(len(out)))
	if len(out) > maxRank {
		return nil, false
	}
	for i := range out {
		t := &out[i]
		if !t.Present() {
			b = append(b, absent)
			continue
		}
		dims := t.Shape.Dims()
		if len(dims) > maxRank {
			return nil, false
		}
		b = append(b, present, byte(t.DType), byte(len(dims)))
		for _, d := range dims {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Len))
		b = append(b, t.Bytes()...)
	}
	return b, true
}

// decode sets out to the tensors of an entry, in memory of a. After an error all are absent. It accepts any bytes:
// each tensor that it returns agrees with its type and shape.
func decode(a tensor.Allocator, b []byte, out []tensor.Tensor) error {
	if len(b) < 2 || b[0] != magic || int(b[1]) != len(out) {
		return errEntry
	}
	b = b[2:]
	var err error
	for i := 0; i < len(out) && err == nil; i++ {
		out[i], b, err = one(a, b)
	}
	if err == nil && len(b) > 0 {
		err = errEntry
	}
	if err != nil {
		tensor.ReleaseAll(out)
	}
	return err
}

// one decodes a tensor and returns the bytes that follow it.
func one(a tensor.Allocator, b []byte) (t tensor.Tensor, rest []byte, err error) {
	if len(b) > 0 && b[0] == absent {
		return t, b[1:], nil
	}
	if len(b) < 3 || b[0] != present {
		return t, nil, errEntry
	}
	d, rank := tensor.DType(b[1]), int(b[2])
	b = b[3:]
	if len(b) < 8*(rank+1) {
		return t, nil, errEntry
	}
	dims := make([]int64, rank)
	for i := range dims {
		dims[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	n := binary.LittleEndian.Uint64(b[8*rank:])
	b = b[8*(rank+1):]
	shape := tensor.Of(dims...)
	if n > uint64(len(b)) || !sound(d, shape, b[:n]) {
		return t, nil, errEntry
	}
	t = tensor.Tensor{DType: d, Shape: shape, Len: int(n)}
	if t.Buf, err = a.Alloc(int(n)); err != nil {
		return tensor.Tensor{}, nil, err
	}
	copy(t.Bytes(), b[:n])
	return t, b[n:], nil
}

// sound reports whether data is valid for the type and shape.
func sound(d tensor.DType, s tensor.Shape, data []byte) bool {
	n := s.Elements()
	if n < 0 {
		return false
	}
	if d == tensor.Bytes {
		return tensor.CheckBytes(data, n) == nil
	}
	size := int64(d.Size())
	return size > 0 && n <= int64(len(data)) && n*size == int64(len(data))
}
