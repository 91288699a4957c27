package meter

import (
	"fmt"
	"math"
)

// reader reads the binary format. Its first error is kept; after it every value is zero. Readers of parts of a module share the
// error of the module's.
type reader struct {
	data    []byte
	at, end int
	err     error
	whole   *reader // the reader whose error counts; nil for itself
}

// of returns a reader of a part of r's data.
func (r *reader) of(s span) *reader {
	if r.err != nil {
		s = span{}
	}
	return &reader{data: r.data, at: s.at, end: s.end, whole: r}
}

// failed returns the error.
func (r *reader) failed() error {
	if r.whole != nil {
		return r.whole.failed()
	}
	return r.err
}

// failAt sets the error, unless there is one, and ends the data.
func (r *reader) failAt(at int, format string, args ...any) {
	first := r
	for first.whole != nil {
		first = first.whole
	}
	if first.err == nil {
		first.err = fmt.Errorf("byte %d: %s", at, fmt.Sprintf(format, args...))
	}
	r.at = r.end
}

// more reports whether there are bytes left.
func (r *reader) more() bool { return r.failed() == nil && r.at < r.end }

// byte reads a byte.
func (r *reader) byte() byte {
	if r.at >= r.end || r.failed() != nil {
		r.failAt(r.at, "expected another byte, found the end")
		return 0
	}
	r.at++
	return r.data[r.at-1]
}

// skip skips n bytes.
func (r *reader) skip(n int) { r.bytes(n) }

// bytes reads n bytes, borrowed.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > r.end-r.at || r.failed() != nil {
		r.failAt(r.at, "expected %d bytes, found %d", n, r.end-r.at)
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

// u32 reads an unsigned number of at most 32 bits in LEB128.
func (r *reader) u32() uint32 {
	at, v := r.at, uint64(0)
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > math.MaxUint32 {
				break
			}
			return uint32(v)
		}
	}
	r.failAt(at, "expected a number of at most 32 bits")
	return 0
}

// leb reads a signed number of at most 64 bits in LEB128 and returns its bytes, borrowed.
func (r *reader) leb() []byte {
	at := r.at
	for range 10 {
		if r.byte() < 0x80 {
			return r.data[at:r.at]
		}
	}
	r.failAt(at, "expected a number of at most 64 bits")
	return nil
}

// count reads a number of items. Each takes at least one byte.
func (r *reader) count() int {
	at, n := r.at, int(r.u32())
	if n > r.end-r.at {
		r.failAt(at, "expected at most %d items in the bytes left, found %d", r.end-r.at, n)
		return 0
	}
	return n
}

// name reads a name, borrowed.
func (r *reader) name() []byte { return r.bytes(int(r.u32())) }
