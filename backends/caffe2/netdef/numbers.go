package netdef

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The tags of the repeated numbers of an Argument. caffe2.proto is of proto2 and does not pack them: each number has a tag.
const (
	floatsTag = 5<<3 | byte(protowire.Fixed32Type)
	intsTag   = 6<<3 | byte(protowire.VarintType)
)

// Floats are repeated 32 bit floats, as they are in the file. A weight of 100 million floats takes no memory besides the file's.
type Floats struct {
	parts []part
	n     int
}

// Ints are repeated integers, as they are in the file.
type Ints struct {
	parts []part
	n     int
}

// part is a run of encoded numbers, each behind a tag unless they are packed.
type part struct {
	data   []byte
	packed bool
}

// Len returns the number of floats.
func (f *Floats) Len() int { return f.n }

// Len returns the number of integers.
func (x *Ints) Len() int { return x.n }

// run appends the floats with tags at the start of data, and returns their size in bytes.
func (f *Floats) run(data []byte) int {
	size := 0
	for len(data)-size >= 5 && data[size] == floatsTag {
		size += 5
	}
	if size > 0 {
		f.parts = append(f.parts, part{data[:size], false})
		f.n += size / 5
	}
	return size
}

// packed appends packed floats.
func (f *Floats) packed(data []byte) error {
	if len(data)%4 != 0 {
		return fmt.Errorf("%w: packed floats take %d bytes", ErrFormat, len(data))
	}
	f.parts = append(f.parts, part{data, true})
	f.n += len(data) / 4
	return nil
}

// run appends the integers with tags at the start of data, and returns their size in bytes.
func (x *Ints) run(data []byte) (size int, err error) {
	for size < len(data) && data[size] == intsTag {
		_, n := protowire.ConsumeVarint(data[size+1:])
		if n < 0 {
			return 0, broken(n)
		}
		size += 1 + n
		x.n++
	}
	if size > 0 {
		x.parts = append(x.parts, part{data[:size], false})
	}
	return size, nil
}

// packed appends packed integers.
func (x *Ints) packed(data []byte) error {
	for rest := data; len(rest) > 0; x.n++ {
		_, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return broken(n)
		}
		rest = rest[n:]
	}
	x.parts = append(x.parts, part{data, true})
	return nil
}

// All returns the floats in order.
func (f *Floats) All() iter.Seq[float32] {
	return func(yield func(float32) bool) {
		for _, p := range f.parts {
			step, at := 5, 1
			if p.packed {
				step, at = 4, 0
			}
			for rest := p.data; len(rest) >= step; rest = rest[step:] {
				if !yield(math.Float32frombits(binary.LittleEndian.Uint32(rest[at:]))) {
					return
				}
			}
		}
	}
}

// Raw passes the floats in order and in little endian to put, in pieces of at most the size of buf, until put returns false. A piece is
// valid until put returns.
func (f *Floats) Raw(buf []byte, put func(b []byte) bool) {
	for _, p := range f.parts {
		for rest := p.data; len(rest) > 0; {
			if p.packed {
				n := min(len(rest), len(buf)&^3)
				if !put(rest[:n]) {
					return
				}
				rest = rest[n:]
				continue
			}
			n := min(len(rest)/5, len(buf)/4)
			for i := range n {
				binary.LittleEndian.PutUint32(buf[4*i:], binary.LittleEndian.Uint32(rest[5*i+1:]))
			}
			if !put(buf[:4*n]) {
				return
			}
			rest = rest[5*n:]
		}
	}
}

// All returns the integers in order.
func (x *Ints) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, p := range x.parts {
			at := 1
			if p.packed {
				at = 0
			}
			for rest := p.data; len(rest) > 0; {
				v, n := protowire.ConsumeVarint(rest[at:]) // checked when the file was read
				if n < 0 || !yield(int64(v)) {             //nolint:gosec // two's complement
					return
				}
				rest = rest[at+n:]
			}
		}
	}
}
