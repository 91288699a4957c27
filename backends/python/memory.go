package python

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/tensor"
)

// memory is the memory that the offsets of a response refer to.
type memory struct {
	mem   []byte
	alloc tensor.Allocator
	// keep returns a buffer over mem, borrowed, in which large tensors may stay. When keep is nil, all are copied.
	keep func() *tensor.Buffer
	// base is the offset of mem in that buffer.
	base int
}

// tensor returns the tensor of p, which the caller has checked with valid.
func (m *memory) tensor(p *part) (tensor.Tensor, error) {
	n := int(p.size)
	if m.keep != nil && n >= largeBytes {
		return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: m.keep().Retain(), Off: m.base + int(p.off), Len: n}, nil
	}
	buf, err := m.alloc.Alloc(n)
	if err != nil {
		return tensor.Tensor{}, err
	}
	copy(buf.Bytes(), m.mem[p.off:p.off+p.size])
	return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: buf, Len: n}, nil
}

// mapping is the mapped body of a packet as a buffer.
type mapping struct{ mem []byte }

// newMapping returns a buffer over the packet's mapping and takes it over.
func newMapping(p *packet) *tensor.Buffer {
	m := &mapping{p.body}
	p.mapped = false
	return tensor.NewBuffer(m, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(m.mem)), len(m.mem))
}

// Free implements tensor.Owner.
func (m *mapping) Free(*tensor.Buffer) { _ = unix.Munmap(m.mem) }
