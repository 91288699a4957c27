package simdev

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Stream is a queue of works of one device, executed by a goroutine. It is safe for
// concurrent use; works of one goroutine keep their order.
type Stream struct {
	device *Device
	name   string
	id     int
	clock  clock // what the next work follows, guarded by the machine's lock
	ended  sync.WaitGroup
	took   atomic.Int64 // ns of works so far

	mu     sync.Mutex
	change sync.Cond
	queue  []work // guarded by mu
	pushed uint64 // works put in, guarded by mu
	done   uint64 // works executed, guarded by mu
	err    error  // of the first work that failed; later ones are skipped; guarded by mu
	closed bool   // guarded by mu
}

var _ tensor.Stream = (*Stream)(nil)

// work is one thing to do.
type work struct {
	run   func() error
	cost  time.Duration
	after *event // or this to wait for
	hold  []*tensor.Buffer
	id    access // of what holds
}

// NewStream starts a stream.
func (d *Device) NewStream(name string) (tensor.Stream, error) { return d.Open(name) }

// Open is NewStream with what a simulated stream can besides.
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
	s := &Stream{device: d, name: name, id: d.machine.number()}
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

// Place returns the device's.
func (s *Stream) Place() tensor.Place { return s.device.place }

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.device }

// Alloc returns n bytes for works put into s from now on.
func (s *Stream) Alloc(n int) (*tensor.Buffer, error) {
	m := s.device.machine
	m.mu.Lock()
	a := s.tick("allocation")
	m.mu.Unlock()
	return s.device.alloc(n, &a)
}

// Free gives the memory back to the device.
func (s *Stream) Free(b *tensor.Buffer) { s.device.Free(b) }

// push adds a work.
func (s *Stream) push(w work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, w)
	s.pushed++
	s.change.Broadcast()
}

var errClosed = errors.New("the stream is closed")

func (s *Stream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream '%s': %w", s.device.place, s.name, errClosed)
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
			_ = w.after.settle() // a failure stays in its own stream
		} else {
			s.execute(&w)
		}
		s.device.machine.letGo(&w)
		s.mu.Lock()
		s.done++
		s.change.Broadcast()
		s.mu.Unlock()
	}
}

// letGo releases what a work that is done has held.
func (m *Machine) letGo(w *work) {
	for _, b := range w.hold {
		m.mu.Lock()
		if _, blk := m.find(b); blk != nil {
			blk.ended.set(w.id.id, max(blk.ended.at(w.id.id), w.id.n))
		}
		m.mu.Unlock()
		b.Release()
	}
}

func (s *Stream) execute(w *work) {
	s.device.holdWhilePaused()
	s.mu.Lock()
	failed := s.err
	s.mu.Unlock()
	if failed != nil {
		return
	}
	s.took.Add(int64(w.cost))
	if s.device.options.Real && w.cost > 0 {
		<-time.After(w.cost)
	}
	if err := w.run(); err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
}

// next waits for a work; false: the stream is closed and empty.
func (s *Stream) next() (work, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.closed {
			return work{}, false
		}
		s.change.Wait()
	}
	w := s.queue[0]
	s.queue[0] = work{}
	s.queue = s.queue[1:]
	return w, true
}

func (s *Stream) elapsed() time.Duration { return time.Duration(s.took.Load()) }

// Close waits for the works and stops the goroutine.
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
	s.device.machine.giveBack(s.id)
	return s.err
}

// tick counts one more work of s, which knows what the host has waited for; the caller
// holds the machine's lock.
func (s *Stream) tick(what string) access {
	m := s.device.machine
	s.clock.join(m.host)
	n := s.clock.at(s.id) + 1
	s.clock.set(s.id, n)
	m.last.set(s.id, n)
	return access{id: s.id, n: n, stream: s.name, what: what}
}

// Record returns an event after everything put into s so far.
func (s *Stream) Record() tensor.Event {
	m := s.device.machine
	m.mu.Lock()
	now := append(clock(nil), s.clock...)
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return &event{stream: s, n: s.pushed, clock: now}
}

// event is a moment of a stream.
type event struct {
	stream *Stream
	n      uint64
	clock  clock
}

var _ tensor.Event = (*event)(nil)

// Done reports whether the stream has come that far; the host then knows it.
func (e *event) Done() bool {
	e.stream.mu.Lock()
	done := e.stream.done >= e.n
	e.stream.mu.Unlock()
	if done {
		e.known()
	}
	return done
}

// Wait stops the host until the stream has come that far.
func (e *event) Wait() error {
	err := e.settle()
	e.known()
	return err
}

func (e *event) settle() error {
	s := e.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done < e.n {
		s.change.Wait()
	}
	return s.err
}

func (e *event) known() {
	m := e.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host.join(e.clock)
}

// WaitOn has s wait.
func (e *event) WaitOn(to tensor.Stream) error {
	s, ok := to.(*Stream)
	if !ok || s.device.machine != e.stream.device.machine {
		return fmt.Errorf("%s: an event of stream '%s' means nothing to a stream of another kind of device", e.stream.device.place, e.stream.name)
	}
	m := s.device.machine
	m.mu.Lock()
	s.clock.join(e.clock)
	m.mu.Unlock()
	s.push(work{after: e})
	return nil
}
