package simdev

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Device is one simulated device. It is safe for concurrent use.
type Device struct {
	machine *Machine
	place   tensor.Place
	options Options
	home    *Stream // waits for the last uses of freed memory

	mu      sync.Mutex
	space   *space                    // guarded by mu
	live    map[*tensor.Buffer]*block // guarded by mu
	streams map[*Stream]struct{}      // guarded by mu
	paused  bool                      // guarded by mu
	resumed sync.Cond
	stats   Stats // guarded by mu
	inUse   int64 // guarded by mu
	closed  bool  // guarded by mu
}

var _ tensor.Accelerator = (*Device)(nil)

// block is one allocation.
type block struct {
	off, n int
	history
}

// Traffic counts copies.
type Traffic struct{ Count, Bytes int64 }

// Stats count the operations of a device.
type Stats struct {
	// Up are copies from the host, Down to it, Within those inside the device and
	// Peer those from another device.
	Up, Down, Within, Peer Traffic
	Kernels, Allocs, Frees int64
}

func newDevice(m *Machine, id int16, o Options) (*Device, error) {
	s, err := newSpace(o.Memory)
	if err != nil {
		return nil, err
	}
	d := &Device{
		machine: m, place: tensor.Place{Kind: tensor.Device, ID: id}, options: o, space: s,
		live: map[*tensor.Buffer]*block{}, streams: map[*Stream]struct{}{},
	}
	d.resumed.L = &d.mu
	d.home = d.start("release")
	return d, nil
}

// Place returns the device's.
func (d *Device) Place() tensor.Place { return d.place }

// Stats returns the counters.
func (d *Device) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// InUse returns the bytes of buffers that are held.
func (d *Device) InUse() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inUse
}

// Elapsed returns the time that the busiest stream's works took.
func (d *Device) Elapsed() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	longest := time.Duration(0)
	for s := range d.streams {
		longest = max(longest, s.elapsed())
	}
	return longest
}

// Pause stops every stream before its next operation, so that a test can check the state in
// between.
func (d *Device) Pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
}

// Resume ends a pause.
func (d *Device) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	d.resumed.Broadcast()
}

func (d *Device) holdWhilePaused() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.paused {
		d.resumed.Wait()
	}
}

// Alloc returns n bytes that any stream may use.
func (d *Device) Alloc(n int) (*tensor.Buffer, error) { return d.alloc(n, nil) }

func (d *Device) alloc(n int, made *access) (*tensor.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s", n, d.place)
	}
	b, err := d.tryAlloc(n, made)
	if err == nil {
		return b, nil
	}
	if d.home.Record().Wait() != nil { // what was freed may be on its way back
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
	off, ok := d.space.take(n)
	if !ok {
		return nil, fmt.Errorf("cannot allocate %d bytes at %s: %d of %d bytes are in use", n, d.place, d.inUse, d.options.Memory)
	}
	b := tensor.NewBuffer(d, d.place, d.space.pointer(off), n)
	d.live[b] = &block{off: off, n: n, history: history{made: made}}
	d.inUse += int64(n)
	d.stats.Allocs++
	return b, nil
}

// Free takes memory back once its last use is over.
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
		// The home stream is open as long as anything is held.
		_ = e.WaitOn(d.home)
	}
	d.home.push(work{run: func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.space.put(blk.off, blk.n)
		return nil
	}})
}

// released checks that every use of the memory is known to be over after the events.
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

// find returns the allocation of a buffer of any device of the machine.
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
	errs := []error{d.home.Close()}
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
