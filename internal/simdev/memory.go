package simdev

import (
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/tensor"
)

// space is the memory of a device, mapped twice: inaccessible addresses, which fault on a host access, and the
// backing memory at the same offsets.
type space struct {
	addresses []byte
	memory    []byte
	used      int                  // offsets below have been allocated before
	free      [bits.UintSize][]int // offsets by size class
}

const align = 64

// poison is the byte that fills freed memory.
const poison = 0xdb

func newSpace(size int) (*space, error) {
	if size < align {
		return nil, fmt.Errorf("expected at least %d bytes of device memory, found %d", align, size)
	}
	const flags = unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_NORESERVE
	addresses, err := unix.Mmap(-1, 0, size, unix.PROT_NONE, flags)
	if err != nil {
		return nil, fmt.Errorf("cannot reserve %d bytes of addresses for a device: %w", size, err)
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		_ = unix.Munmap(addresses)
		return nil, fmt.Errorf("cannot map %d bytes of memory for a device: %w", size, err)
	}
	return &space{addresses: addresses, memory: memory}, nil
}

func (s *space) close() error {
	if err := unix.Munmap(s.addresses); err != nil {
		return err
	}
	return unix.Munmap(s.memory)
}

// class returns the size class of n bytes, a power of two.
func class(n int) int { return bits.Len(uint(max(n, align) - 1)) }

// alloc returns the offset of n free bytes, or false when there are none.
func (s *space) alloc(n int) (int, bool) {
	if n > len(s.memory) {
		return 0, false
	}
	c := class(n)
	if l := len(s.free[c]); l > 0 {
		off := s.free[c][l-1]
		s.free[c] = s.free[c][:l-1]
		return off, true
	}
	if size := 1 << c; size <= len(s.memory)-s.used {
		s.used += size
		return s.used - size, true
	}
	return 0, false
}

// release frees n bytes and poisons them.
func (s *space) release(off, n int) {
	m := s.memory[off : off+n]
	for i := range m {
		m[i] = poison
	}
	c := class(n)
	s.free[c] = append(s.free[c], off)
}

func (s *space) pointer(off int) unsafe.Pointer { return unsafe.Pointer(&s.addresses[off]) }

// bytes returns the memory behind a buffer.
func (s *space) bytes(b *tensor.Buffer) []byte {
	off := uintptr(b.Pointer()) - uintptr(unsafe.Pointer(unsafe.SliceData(s.addresses)))
	return s.memory[off : int(off)+b.Len()]
}
