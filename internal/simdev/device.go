package simdev

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/tensor"
)

// Device is one simulated device. It is safe for concurrent use.
type Device struct {
	machine  *Machine
	place    tensor.Place
	options  Options
	releases *Stream // waits for the last uses of freed memory

	mu      sync.Mutex
	space   *space                    // guarded by mu
	live    map[*tensor.Buffer]*block // guarded by mu
	streams map[*Stream]struct{}      // guarded by mu
	stats   Stats                     // guarded by mu
	inUse   int64                     // guarded by mu
	closed  bool                      // guarded by mu
}

// block is one allocation.
type block struct {
	off, n int
	history
}

// Traffic counts copies.
type Traffic struct{ Count, Bytes int64 }

// Stats counts the operations of a device.
type Stats struct {
	// Up counts copies from the host, Down to the host, Within inside the device, and Peer from another device.
	Up, Down, Within, Peer Traffic
	Kernels, Allocs, Frees int64
	// Busy is the simulated time of all operations.
	Busy time.Duration
}

func newDevice(m *Machine, id int16, o Options) (*Device, error) {
	s, err := newSpace(o.Memory)
	if err != nil {
		return nil, err
	}
	place := tensor.Place{Kind: tensor.Device, ID: id}
	d := &Device{machine: m, place: place, options: o, space: s, live: map[*tensor.Buffer]*block{}, streams: map[*Stream]struct{}{}}
	d.releases = d.start("release")
	return d, nil
}

// Place returns the place of the device's memory.
func (d *Device) Place() tensor.Place { return d.place }

// Stats returns a copy of the counters.
func (d *Device) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// InUse returns the size of all held buffers in bytes.
func (d *Device) InUse() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inUse
}

// Alloc returns a buffer of n bytes that any stream may use at once.
func (d *Device) Alloc(n int) (*tensor.Buffer, error) { return d.alloc(n, nil) }

func (d *Device) alloc(n int, made *access) (*tensor.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s", n, d.place)
	}
	b, err := d.tryAlloc(n, made)
	if err == nil {
		return b, nil
	}
	if d.releases.Record().Wait() != nil { // freed memory may not be available yet
		return nil, err
	}
	return d.tryAlloc(n, made)
}

func (d *Device) tryAlloc(n int, made *access) (*tensor.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s, which is closed", n, d.place)
	}
	off, ok := d.space.alloc(n)
	if !ok {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s: %d of %d bytes are in use", n, d.place, d.inUse, d.options.Memory)
	}
	b := tensor.NewBuffer(d, d.place, d.space.pointer(off), n)
	d.live[b] = &block{off: off, n: n, history: history{made: made}}
	d.inUse += int64(n)
	d.stats.Allocs++
	return b, nil
}

// Free releases memory after the events of its last uses. tensor.Buffer calls it; it does not block.
func (d *Device) Free(b *tensor.Buffer) {
	events := b.TakeOrder()
	d.mu.Lock()
	blk := d.live[b]
	delete(d.live, b)
	if blk != nil {
		d.inUse -= int64(blk.n)
		d.stats.Frees++
	}
	d.mu.Unlock()
	if blk == nil {
		return
	}
	d.machine.released(b, blk, events)
	for _, e := range events {
		// WaitOn cannot fail: the release stream is open as long as a buffer is held.
		_ = e.WaitOn(d.releases)
	}
	d.releases.push(operation{run: func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.space.release(blk.off, blk.n)
		return nil
	}})
}

// released records a fault when a use of the memory is not ordered before the events of its release.
func (m *Machine) released(b *tensor.Buffer, blk *block, events []tensor.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := append(clock(nil), m.host...)
	for _, e := range events {
		if e, ok := e.(*event); ok {
			now.join(e.clock)
		}
	}
	now.join(blk.ended)
	if err := blk.over(b, now); err != nil {
		m.fault(err)
	}
}

// find returns the device and the allocation of a buffer of this machine.
func (m *Machine) find(b *tensor.Buffer) (*Device, *block) {
	for _, d := range m.devices {
		if d.place != b.Place() {
			continue
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d, d.live[b]
	}
	return nil, nil
}

func (d *Device) count(f func(*Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

func (d *Device) close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	errs := []error{d.releases.Close()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.streams); n > 0 {
		errs = append(errs, fmt.Errorf("%s: %d streams are still open", d.place, n))
		return errors.Join(errs...)
	}
	if len(d.live) > 0 {
		errs = append(errs, fmt.Errorf("%s: %d buffers of %d bytes together are still held", d.place, len(d.live), d.inUse))
	}
	return errors.Join(append(errs, d.space.close())...)
}

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
