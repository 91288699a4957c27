package simdev

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
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

	// Guarded by the machine's mu.
	space   *space
	live    map[*tensor.Buffer]*block
	streams int // open ones
	stats   Stats
	inUse   int64
	closed  bool
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

// Place returns the place of the device's memory.
func (d *Device) Place() tensor.Place { return d.place }

// Stats returns a copy of the counters.
func (d *Device) Stats() Stats {
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	return d.stats
}

// InUse returns the size of all held buffers in bytes.
func (d *Device) InUse() int64 {
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	return d.inUse
}

// Alloc returns a buffer of n bytes that any stream may use at once.
func (d *Device) Alloc(n int) (*tensor.Buffer, error) { return d.alloc(n, nil) }

func (d *Device) alloc(n int, made *access) (*tensor.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s", n, d.place)
	}
	b, err := d.tryAlloc(n, made)
	if err != nil && d.releases.Record().Wait() == nil { // freed memory is available now
		return d.tryAlloc(n, made)
	}
	return b, err
}

func (d *Device) tryAlloc(n int, made *access) (*tensor.Buffer, error) {
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s, which is closed", n, d.place)
	}
	off, ok := d.space.alloc(n)
	if !ok {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s: %d of %d bytes are in use", n, d.place, d.inUse, d.options.Memory)
	}
	b := tensor.NewBuffer(d, d.place, unsafe.Pointer(&d.space.addresses[off]), n)
	d.live[b] = &block{off: off, n: n, history: history{made: made}}
	d.inUse += int64(n)
	d.stats.Allocs++
	return b, nil
}

// Free releases memory after the events of its last uses. tensor.Buffer calls it; it does not block.
func (d *Device) Free(b *tensor.Buffer) {
	events := b.TakeOrder()
	blk := d.remove(b, events)
	if blk == nil {
		return
	}
	for _, e := range events {
		// WaitOn cannot fail: the release stream is open as long as a buffer is held.
		_ = e.WaitOn(d.releases)
	}
	m := d.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	d.releases.push(operation{run: func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		d.space.release(blk.off, blk.n)
		return nil
	}})
}

// remove ends an allocation and returns it, or nil when there is none. It records a fault, of which there is a bound, when a use of
// the memory is not ordered before the events of its release.
func (d *Device) remove(b *tensor.Buffer, events []tensor.Event) *block {
	m := d.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	blk := d.live[b]
	if blk == nil {
		return nil
	}
	delete(d.live, b)
	d.inUse -= int64(blk.n)
	d.stats.Frees++
	now := slices.Clone(m.host)
	for _, e := range events {
		if e, ok := e.(*event); ok {
			now.join(e.clock)
		}
	}
	now.join(blk.ended)
	if err := blk.over(b, now); err != nil && len(m.faults) < 100 {
		m.faults = append(m.faults, err)
	}
	return blk
}

// find returns the device and the allocation of a buffer of this machine. The caller holds mu.
func (m *Machine) find(b *tensor.Buffer) (*Device, *block) {
	for _, d := range m.devices {
		if d.place == b.Place() {
			return d, d.live[b]
		}
	}
	return nil, nil
}

// bytes returns the memory of a host or device buffer.
func (m *Machine) bytes(b *tensor.Buffer) []byte {
	if b.Place().Kind != tensor.Device {
		return b.Bytes()
	}
	for _, d := range m.devices {
		if d.place == b.Place() {
			return d.space.bytes(b)
		}
	}
	return nil
}

// cost returns the simulated duration of an operation on n bytes.
func (d *Device) cost(n int) time.Duration {
	cost := d.options.Latency
	if d.options.Bandwidth > 0 {
		cost += time.Duration(float64(n) / float64(d.options.Bandwidth) * float64(time.Second))
	}
	return cost
}

func (d *Device) close() error {
	d.machine.mu.Lock()
	closed := d.closed
	d.closed = true
	d.machine.mu.Unlock()
	if closed {
		return nil
	}
	errs := []error{d.releases.Close()}
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	if d.streams > 0 {
		return errors.Join(append(errs, fmt.Errorf("%s: %d streams are still open", d.place, d.streams))...)
	}
	if len(d.live) > 0 {
		errs = append(errs, fmt.Errorf("%s: %d buffers of %d bytes together are still held", d.place, len(d.live), d.inUse))
	}
	return errors.Join(append(errs, unix.Munmap(d.space.addresses), unix.Munmap(d.space.memory))...)
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

// bytes returns the memory behind a buffer.
func (s *space) bytes(b *tensor.Buffer) []byte {
	off := uintptr(b.Pointer()) - uintptr(unsafe.Pointer(unsafe.SliceData(s.addresses)))
	return s.memory[off : int(off)+b.Len()]
}
