package simdev

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Stream is a queue of operations of one device, executed in order by a goroutine. It is safe for concurrent use;
// operations enqueued by one goroutine keep their order.
type Stream struct {
	device *Device
	name   string
	id     int
	ended  sync.WaitGroup

	// Guarded by the machine's mu.
	clock  clock // operations that the next one follows
	change sync.Cond
	queue  []operation
	pushed uint64 // number of enqueued operations
	done   uint64 // number of executed operations
	err    error  // of the first failed operation; later ones are skipped
	closed bool

	skipped time.Duration // the simulated cost of the operations that took no time
}

// operation is one entry of a stream's queue: a function to run, or an event to wait for.
type operation struct {
	run   func() error
	cost  time.Duration
	after *event // set instead of run: the event to wait for
	hold  []*tensor.Buffer
	id    *access // the access for which hold has references
}

// NewStream implements tensor.Accelerator.
func (d *Device) NewStream(name string) (tensor.Stream, error) { return d.Open(name) }

// Open starts a stream and returns its concrete type, which also launches kernels. The caller must close it.
func (d *Device) Open(name string) (*Stream, error) {
	d.machine.mu.Lock()
	defer d.machine.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cannot start stream '%s' at %s, which is closed", name, d.place)
	}
	return d.start(name), nil
}

// start is Open for callers that hold the machine's mu.
func (d *Device) start(name string) *Stream {
	m := d.machine
	s := &Stream{device: d, name: name, id: m.newID()}
	s.change.L = &m.mu
	s.clock.set(s.id, m.last.at(s.id))
	d.streams++
	s.ended.Go(s.loop)
	return s
}

// Place returns the place of the device's memory.
func (s *Stream) Place() tensor.Place { return s.device.place }

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.device }

// Alloc returns a buffer of n bytes for operations enqueued into s from now on.
func (s *Stream) Alloc(n int) (*tensor.Buffer, error) {
	m := s.device.machine
	m.mu.Lock()
	a := s.tick("allocation")
	m.mu.Unlock()
	return s.device.alloc(n, a)
}

// Free returns the memory to the device.
func (s *Stream) Free(b *tensor.Buffer) { s.device.Free(b) }

// push enqueues an operation. The caller holds the machine's mu.
func (s *Stream) push(o operation) {
	s.queue = append(s.queue, o)
	s.pushed++
	s.change.Broadcast()
}

func (s *Stream) loop() {
	m := s.device.machine
	for {
		o, skip, ok := s.next()
		if !ok {
			return
		}
		var err error
		if !skip {
			if s.device.options.Real && o.cost > 0 {
				<-time.After(o.cost)
			}
			err = o.run()
		}
		m.releaseHeld(&o)
		m.mu.Lock()
		if err != nil {
			s.err = err
		}
		s.done++
		s.change.Broadcast()
		m.mu.Unlock()
	}
}

// next waits for an operation, and for its event. skip means that it has no function to run, or that an operation before it has
// failed. ok is false when the stream is closed and empty.
func (s *Stream) next() (o operation, skip, ok bool) {
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closed {
			return operation{}, false, false
		}
		s.change.Wait()
	}
	o = s.queue[0]
	s.queue[0] = operation{}
	s.queue = s.queue[1:]
	if o.after != nil {
		_ = o.after.wait() // the error stays in the other stream
	}
	if skip = o.run == nil || s.err != nil; !skip {
		s.device.stats.Busy += o.cost
		if !s.device.options.Real {
			s.skipped += o.cost
		}
	}
	return o, skip, true
}

// releaseHeld releases the references of a completed operation.
func (m *Machine) releaseHeld(o *operation) {
	for _, b := range o.hold {
		m.mu.Lock()
		if _, blk := m.find(b); blk != nil {
			blk.ended.set(o.id.id, max(blk.ended.at(o.id.id), o.id.n))
		}
		m.mu.Unlock()
		b.Release()
	}
}

// Close waits for all operations and stops the goroutine. It returns the error of the first failed operation. It
// may be called twice.
func (s *Stream) Close() error {
	m := s.device.machine
	m.mu.Lock()
	again := s.closed
	s.closed = true
	s.change.Broadcast()
	m.mu.Unlock()
	s.ended.Wait()
	if again {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.device.streams--
	m.spare = append(m.spare, s.id)
	return s.err
}

// tick counts one more operation of s and orders it after everything that the host has waited for. The caller holds
// the machine's lock.
func (s *Stream) tick(what string) *access {
	m := s.device.machine
	s.clock.join(m.host)
	n := s.clock.at(s.id) + 1
	s.clock.set(s.id, n)
	m.last.set(s.id, n)
	return &access{id: s.id, n: n, stream: s.name, what: what}
}

// Record returns an event after all operations enqueued so far.
func (s *Stream) Record() tensor.Event {
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return &event{stream: s, n: s.pushed, clock: slices.Clone(s.clock)}
}

// event is a point in a stream: after its first n operations.
type event struct {
	stream *Stream
	n      uint64
	clock  clock
}

// Done reports whether the stream has reached the event. If so, the operations before it are ordered before all
// later ones of the host.
func (e *event) Done() bool {
	m := e.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	done := e.stream.done >= e.n
	if done {
		m.host.join(e.clock)
	}
	return done
}

// Wait blocks the host until the stream has reached the event.
func (e *event) Wait() error {
	m := e.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	err := e.wait()
	m.host.join(e.clock)
	return err
}

// wait is Wait without an order for the host. The caller holds the machine's mu.
func (e *event) wait() error {
	for e.stream.done < e.n {
		e.stream.change.Wait()
	}
	return e.stream.err
}

// WaitOn makes the stream wait for the event. It does not block the host.
func (e *event) WaitOn(to tensor.Stream) error {
	s, ok := to.(*Stream)
	if !ok || s.device.machine != e.stream.device.machine {
		return fmt.Errorf("%s: an event of stream '%s' cannot be waited for by a stream of another machine", e.stream.device.place, e.stream.name)
	}
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	s.clock.join(e.clock)
	s.push(operation{after: e})
	return nil
}

// Copy enqueues a copy; see tensor.Stream.
func (s *Stream) Copy(dst *tensor.Buffer, dstOff int, src *tensor.Buffer, srcOff, n int) error {
	d := s.device
	if dst.Place() != d.place && src.Place() != d.place {
		return fmt.Errorf("%s: stream '%s' copies from %s to %s, expected its own device on one side", d.place, s.name, src.Place(), dst.Place())
	}
	if err := cmp.Or(bounds(dst, dstOff, n), bounds(src, srcOff, n)); err != nil || n == 0 {
		return err
	}
	to, from := d.machine.bytes(dst), d.machine.bytes(src)
	o := operation{cost: d.cost(n), hold: []*tensor.Buffer{dst, src}, run: func() error {
		copy(to[dstOff:dstOff+n], from[srcOff:srcOff+n])
		return nil
	}}
	what := "copy from " + src.Place().String() + " to " + dst.Place().String()
	return s.enqueue(what, []*tensor.Buffer{src}, []*tensor.Buffer{dst}, o, func(st *Stats) { st.traffic(src.Place(), dst.Place(), n) })
}

func (s *Stats) traffic(from, to tensor.Place, n int) {
	t := &s.Within
	switch {
	case from.Kind != tensor.Device:
		t = &s.Up
	case to.Kind != tensor.Device:
		t = &s.Down
	case from != to:
		t = &s.Peer
	}
	t.Count++
	t.Bytes += int64(n)
}

func bounds(b *tensor.Buffer, off, n int) error {
	if off < 0 || n < 0 || off > b.Len()-n {
		return fmt.Errorf("%s: %d bytes at %d are not in a buffer of %d", b.Place(), n, off, b.Len())
	}
	return nil
}

// Fill enqueues a fill with a pattern; see tensor.Stream.
func (s *Stream) Fill(dst *tensor.Buffer, off, n int, elem []byte) error {
	if dst.Place() != s.device.place {
		return fmt.Errorf("%s: stream '%s' cannot fill memory at %s", s.device.place, s.name, dst.Place())
	}
	if err := bounds(dst, off, n); err != nil {
		return err
	}
	if len(elem) > 0 && n%len(elem) != 0 {
		return fmt.Errorf("%s: %d bytes cannot be filled with elements of %d", dst.Place(), n, len(elem))
	}
	if n == 0 {
		return nil
	}
	to, elem := s.device.machine.bytes(dst), slices.Clone(elem)
	hold := []*tensor.Buffer{dst}
	return s.enqueue("fill", nil, hold, operation{cost: s.device.cost(n), hold: hold, run: func() error {
		part := to[off : off+n]
		if len(elem) == 0 {
			clear(part)
		}
		for len(elem) > 0 && len(part) > 0 {
			part = part[copy(part, elem):]
		}
		return nil
	}}, func(*Stats) {})
}

// Memory gives a kernel access to device memory.
type Memory struct{ machine *Machine }

// Bytes returns the content of a device buffer, borrowed until the kernel returns.
func (m Memory) Bytes(b *tensor.Buffer) []byte { return m.machine.bytes(b) }

// Launch enqueues kernel f, which may read the buffers of reads and write those of writes. Unlike Copy, it holds no
// references: the caller must call UsedUntil and SetReady.
func (s *Stream) Launch(name string, reads, writes []*tensor.Buffer, f func(m Memory) error) error {
	o := operation{cost: s.device.options.Latency, run: func() error { return f(Memory{s.device.machine}) }}
	return s.enqueue("kernel "+name, reads, writes, o, func(st *Stats) { st.Kernels++ })
}

// enqueue checks, records and counts an operation and its accesses, retains the buffers that it holds, and enqueues it.
func (s *Stream) enqueue(what string, reads, writes []*tensor.Buffer, o operation, count func(*Stats)) error {
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream '%s': the stream is closed", s.device.place, s.name)
	}
	if s.err != nil {
		return s.err
	}
	o.id = s.tick(what)
	for i, b := range slices.Concat(reads, writes) {
		if err := m.touch(b, o.id, s.clock, i >= len(reads)); err != nil {
			return err
		}
	}
	for _, b := range o.hold {
		b.Retain()
	}
	count(&s.device.stats)
	s.push(o)
	return nil
}

// touch checks and records one access to a buffer; the caller holds the lock.
func (m *Machine) touch(b *tensor.Buffer, a *access, now clock, write bool) error {
	if b.Place().Kind != tensor.Device || b.Len() == 0 {
		return nil
	}
	d, blk := m.find(b)
	switch {
	case d == nil:
		return fmt.Errorf("%s is no device of this machine", b.Place())
	case blk == nil:
		return fmt.Errorf("%s: %s comes after the memory was freed", where(b), a)
	}
	if err := blk.order(b, a, now, write); err != nil {
		return err
	}
	blk.note(a, write)
	return nil
}
