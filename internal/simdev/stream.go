package simdev

import (
	"fmt"
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
	clock  clock // operations that the next one follows, guarded by the machine's lock
	ended  sync.WaitGroup

	mu     sync.Mutex
	change sync.Cond
	queue  []operation // guarded by mu
	pushed uint64      // number of enqueued operations, guarded by mu
	done   uint64      // number of executed operations, guarded by mu
	err    error       // of the first failed operation; later ones are skipped; guarded by mu
	closed bool        // guarded by mu
}

// operation is one entry of a stream's queue: a function to run, or an event to wait for.
type operation struct {
	run   func() error
	cost  time.Duration
	after *event // set instead of run: the event to wait for
	hold  []*tensor.Buffer
	id    access // the access for which hold has references
}

// NewStream implements tensor.Accelerator.
func (d *Device) NewStream(name string) (tensor.Stream, error) { return d.Open(name) }

// Open starts a stream and returns its concrete type, which also launches kernels. The caller must close it.
func (d *Device) Open(name string) (*Stream, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("cannot start stream '%s' at %s, which is closed", name, d.place)
	}
	return d.start(name), nil
}

func (d *Device) start(name string) *Stream {
	s := &Stream{device: d, name: name, id: d.machine.newID()}
	s.change.L = &s.mu
	d.machine.mu.Lock()
	s.clock.set(s.id, d.machine.last.at(s.id))
	d.machine.mu.Unlock()
	d.mu.Lock()
	d.streams[s] = struct{}{}
	d.mu.Unlock()
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
	return s.device.alloc(n, &a)
}

// Free returns the memory to the device.
func (s *Stream) Free(b *tensor.Buffer) { s.device.Free(b) }

// push enqueues an operation.
func (s *Stream) push(o operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, o)
	s.pushed++
	s.change.Broadcast()
}

func (s *Stream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream '%s': the stream is closed", s.device.place, s.name)
	}
	return s.err
}

func (s *Stream) loop() {
	for {
		w, ok := s.next()
		if !ok {
			return
		}
		if w.after != nil {
			_ = w.after.wait() // the error stays in the other stream
		} else {
			s.execute(&w)
		}
		s.device.machine.releaseHeld(&w)
		s.mu.Lock()
		s.done++
		s.change.Broadcast()
		s.mu.Unlock()
	}
}

// releaseHeld releases the references of a completed operation.
func (m *Machine) releaseHeld(w *operation) {
	for _, b := range w.hold {
		m.mu.Lock()
		if _, blk := m.find(b); blk != nil {
			blk.ended.set(w.id.id, max(blk.ended.at(w.id.id), w.id.n))
		}
		m.mu.Unlock()
		b.Release()
	}
}

func (s *Stream) execute(w *operation) {
	s.mu.Lock()
	failed := s.err
	s.mu.Unlock()
	if failed != nil {
		return
	}
	s.device.count(func(st *Stats) { st.Busy += w.cost })
	if s.device.options.Real && w.cost > 0 {
		<-time.After(w.cost)
	}
	if err := w.run(); err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
}

// next waits for an operation. It returns false when the stream is closed and empty.
func (s *Stream) next() (operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closed {
			return operation{}, false
		}
		s.change.Wait()
	}
	w := s.queue[0]
	s.queue[0] = operation{}
	s.queue = s.queue[1:]
	return w, true
}

// Close waits for all operations and stops the goroutine. It returns the error of the first failed operation. It
// may be called twice.
func (s *Stream) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.change.Broadcast()
	s.mu.Unlock()
	s.ended.Wait()
	if again {
		return nil
	}
	s.device.mu.Lock()
	delete(s.device.streams, s)
	s.device.mu.Unlock()
	m := s.device.machine
	m.mu.Lock()
	m.spare = append(m.spare, s.id)
	m.mu.Unlock()
	return s.err
}

// tick counts one more operation of s and orders it after everything that the host has waited for. The caller holds
// the machine's lock.
func (s *Stream) tick(what string) access {
	m := s.device.machine
	s.clock.join(m.host)
	n := s.clock.at(s.id) + 1
	s.clock.set(s.id, n)
	m.last.set(s.id, n)
	return access{id: s.id, n: n, stream: s.name, what: what}
}

// Record returns an event after all operations enqueued so far.
func (s *Stream) Record() tensor.Event {
	m := s.device.machine
	m.mu.Lock()
	now := append(clock(nil), s.clock...)
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return &event{stream: s, n: s.pushed, clock: now}
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
	e.stream.mu.Lock()
	done := e.stream.done >= e.n
	e.stream.mu.Unlock()
	if done {
		e.orderHost()
	}
	return done
}

// Wait blocks the host until the stream has reached the event.
func (e *event) Wait() error {
	err := e.wait()
	e.orderHost()
	return err
}

func (e *event) wait() error {
	s := e.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done < e.n {
		s.change.Wait()
	}
	return s.err
}

func (e *event) orderHost() {
	m := e.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host.join(e.clock)
}

// WaitOn makes the stream wait for the event. It does not block the host.
func (e *event) WaitOn(to tensor.Stream) error {
	s, ok := to.(*Stream)
	if !ok || s.device.machine != e.stream.device.machine {
		return fmt.Errorf("%s: an event of stream '%s' cannot be waited for by a stream of another machine", e.stream.device.place, e.stream.name)
	}
	m := s.device.machine
	m.mu.Lock()
	s.clock.join(e.clock)
	m.mu.Unlock()
	s.push(operation{after: e})
	return nil
}
