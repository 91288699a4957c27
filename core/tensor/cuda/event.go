package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/core/tensor"
)

// event is a position in a stream: behind its first after operations.
type event struct {
	stream *Stream
	after  uint64
}

var _ tensor.Event = (*event)(nil)

// eventsAtOnce is how many events a stream allocates together.
const eventsAtOnce = 128

// Record returns an event behind all work so far. It calls no driver function, see the package comment.
func (s *Stream) Record() tensor.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eventLocked()
}

func (s *Stream) eventLocked() *event {
	if n := len(s.events); n > 0 && s.events[n-1].after == s.ops {
		return &s.events[n-1]
	}
	if len(s.events) == cap(s.events) {
		s.events = make([]event, 0, eventsAtOnce) // the holders of events keep the old ones
	}
	s.events = append(s.events, event{s, s.ops})
	return &s.events[len(s.events)-1]
}

// takeEvent returns an event of the driver, a used one if there is one.
func (v *Device) takeEvent() (C.cu_event, error) {
	v.mu.Lock()
	if k := len(v.idle); k > 0 {
		e := v.idle[k-1]
		v.idle = v.idle[:k-1]
		v.mu.Unlock()
		return e, nil
	}
	v.mu.Unlock()
	var e C.cu_event
	const blocking, noTiming = 1, 2
	err := v.check(C.tutti_cuda_event_create(v.driver.table, v.ctx, &e, blocking|noTiming), "cuEventCreate") //nolint:gocritic // cgo's check of the address
	return e, err
}

func (v *Device) putEvent(e C.cu_event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.idle = append(v.idle, e)
}

// markLocked returns a mark behind at least the first after operations, and records one if there is none.
func (s *Stream) markLocked(after uint64) (*mark, error) {
	i, _ := slices.BinarySearchFunc(s.marks, after, func(m mark, after uint64) int { return cmp.Compare(m.after, after) })
	if i < len(s.marks) {
		return &s.marks[i], nil
	}
	v := s.device
	e, err := v.takeEvent()
	if err != nil {
		return nil, err
	}
	if err := v.check(C.tutti_cuda_event_record(v.driver.table, v.ctx, e, s.handle), "cuEventRecord"); err != nil {
		v.putEvent(e)
		return nil, err
	}
	s.marks = append(s.marks, mark{after: s.ops, event: e})
	return &s.marks[len(s.marks)-1], nil
}

// failLocked notes an error after which no operation completes.
func (s *Stream) failLocked(err error) {
	if err != nil && s.failed == nil && s.device.Lost() != nil {
		s.failed = err
	}
}

// pollLocked notes which operations are complete.
func (s *Stream) pollLocked() error {
	v := s.device
	n := 0
	for n < len(s.marks) {
		m := &s.marks[n]
		if m.after > s.done {
			r := C.tutti_cuda_event_query(v.driver.table, v.ctx, m.event)
			if r == notReady {
				break
			}
			if err := v.check(r, "cuEventQuery"); err != nil {
				s.failLocked(err)
				return err
			}
			s.done = max(s.done, m.after)
		}
		if m.waiters > 0 {
			break
		}
		if !m.timed {
			v.putEvent(m.event)
		}
		n++
	}
	s.marks = append(s.marks[:0], s.marks[n:]...)
	return nil
}

// waitLocked blocks until the first after operations are complete. It gives up the lock while it waits.
func (s *Stream) waitLocked(after uint64) error {
	if s.done >= after {
		return nil
	}
	if s.failed != nil {
		return s.failed
	}
	m, err := s.markLocked(after)
	if err != nil {
		return s.drainLocked() // for example, there is no memory for an event
	}
	e, upTo := m.event, m.after
	m.waiters++
	s.mu.Unlock()
	v := s.device
	err = v.check(C.tutti_cuda_event_sync(v.driver.table, v.ctx, e), "cuEventSynchronize")
	s.mu.Lock()
	for i := range s.marks {
		if s.marks[i].event == e {
			s.marks[i].waiters--
		}
	}
	if err != nil {
		s.failLocked(err)
		return err
	}
	s.done = max(s.done, upTo)
	return s.pollLocked()
}

// drainLocked blocks until all operations are complete. It gives up the lock while it waits.
func (s *Stream) drainLocked() error {
	if s.closed {
		return fmt.Errorf("%s: stream '%s' is closed", s.Place(), s.name)
	}
	upTo, v := s.ops, s.device
	s.mu.Unlock()
	err := v.check(C.tutti_cuda_stream_sync(v.driver.table, v.ctx, s.handle), "cuStreamSynchronize")
	s.mu.Lock()
	if err != nil {
		s.failLocked(err)
		return err
	}
	s.done = max(s.done, upTo)
	return nil
}

// Done reports whether the work before the event is complete. It does not block.
func (e *event) Done() bool {
	s := e.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done >= e.after {
		return true
	}
	if s.failed != nil {
		return false
	}
	if _, err := s.markLocked(e.after); err != nil {
		return false
	}
	return s.pollLocked() == nil && s.done >= e.after
}

// Follows reports that an event is of the same stream and not later, so that e stands for both.
func (e *event) Follows(o tensor.Event) bool {
	f, ok := o.(*event)
	return ok && f.stream == e.stream && f.after <= e.after
}

// Wait blocks until the work before the event is complete. The error is that of the device.
func (e *event) Wait() error {
	e.stream.mu.Lock()
	defer e.stream.mu.Unlock()
	return e.stream.waitLocked(e.after)
}

// WaitOn makes work put into to from now on wait for the event. It does not block.
func (e *event) WaitOn(to tensor.Stream) error {
	t, ok := to.(*Stream)
	if !ok || t.device.driver != e.stream.device.driver {
		return fmt.Errorf("%s: a stream at %s cannot wait for an event of stream '%s'", e.stream.Place(), to.Place(), e.stream.name)
	}
	s := e.stream
	if s == t {
		return nil // a stream executes in order
	}
	if err := t.usable(); err != nil || t.waitsFor(e) {
		return err
	}
	put, err := s.putWait(e.after, t)
	if put {
		t.noteWait(e)
	}
	return err
}

// waitsFor reports whether the newest wait in the stream covers e: several inputs of a step mostly come from one stream.
func (s *Stream) waitsFor(e *event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waited != nil && e.stream == s.waited.stream && e.after <= s.waited.after
}

// noteWait counts a wait that was put into the stream.
func (s *Stream) noteWait(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops++
	s.waited = e
}

// maxMarks is how many driver events a stream has outstanding before it looks which are complete.
const maxMarks = 16

// putWait puts a wait for the first after operations into to, and reports whether one was needed.
func (s *Stream) putWait(after uint64, to *Stream) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done >= after {
		return false, nil
	}
	if s.failed != nil {
		return false, s.failed
	}
	m, err := s.markLocked(after)
	if err != nil {
		return false, err
	}
	v := to.device
	if err := v.check(C.tutti_cuda_stream_wait(v.driver.table, v.ctx, to.handle, m.event), "cuStreamWaitEvent"); err != nil {
		return false, err
	}
	if len(s.marks) > maxMarks {
		return true, s.pollLocked()
	}
	return true, nil
}
