package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// span is a measurement by events with timing. Its last event also is a mark of the stream, so that streams that wait for the work, and
// the host, need no other event. Spans are reused with their events.
type span struct {
	stream    *Stream
	events    [tensor.Laps + 1]C.cu_event
	recorded  int                   // of events
	positions [tensor.Laps + 1]int8 // the event of each mark
	marked    int                   // of positions
	after     uint64                // operations before the last mark
	submitted time.Time             // before the first mark
	ns        [tensor.Laps]int64    // once known
	known     bool
	err       error // why it will never be known
}

var (
	_ tensor.Timer = (*Stream)(nil)
	_ tensor.Span  = (*span)(nil)
)

// Span implements tensor.Timer.
func (s *Stream) Span() (tensor.Span, error) {
	if s.device.driver.table.event_elapsed == nil {
		return nil, status.Errorf(status.Unsupported, "the CUDA driver has no function cuEventElapsedTime: update the NVIDIA driver")
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	p := s.device.takeSpan()
	p.stream, p.submitted = s, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans = append(s.spans, p)
	return p, nil
}

func (v *Device) takeSpan() *span {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := len(v.spans); k > 0 {
		p := v.spans[k-1]
		v.spans = v.spans[:k-1]
		return p
	}
	return &span{}
}

// Mark implements tensor.Span.
func (p *span) Mark(own bool) error {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.marked == len(p.positions):
		return fmt.Errorf("%s: a measurement has at most %d marks", s.Place(), len(p.positions))
	case s.closed:
		return fmt.Errorf("%s: stream '%s' is closed", s.Place(), s.name)
	case own || p.recorded == 0 || p.after != s.ops:
		if err := p.recordLocked(); err != nil {
			p.err = err
			return err
		}
	}
	p.positions[p.marked] = int8(p.recorded - 1) //nolint:gosec // at most Laps
	p.marked++
	return nil
}

// recordLocked records the next event, and makes it a mark of the stream unless it is the first.
func (p *span) recordLocked() error {
	s := p.stream
	v, e := s.device, &p.events[p.recorded]
	if *e == nil {
		const blocking = 1
		a := C.tutti_cuda_event_new(v.driver.table, v.ctx, blocking)
		if err := v.check(a.result, "cuEventCreate"); err != nil {
			return err
		}
		*e = a.event
	}
	if err := v.check(C.tutti_cuda_event_record(v.driver.table, v.ctx, *e, s.handle), "cuEventRecord"); err != nil {
		return err
	}
	if n := len(s.marks); p.recorded > 0 && s.done < s.ops && (n == 0 || s.marks[n-1].after < s.ops) {
		s.marks = append(s.marks, mark{after: s.ops, event: *e, timed: true})
	}
	p.recorded++
	p.after = s.ops
	return nil
}

// Laps implements tensor.Span.
func (p *span) Laps(ask bool) (ns [tensor.Laps]int64, ok bool, err error) {
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	return p.readLocked(ask)
}

func (p *span) readLocked(ask bool) (ns [tensor.Laps]int64, ok bool, err error) {
	if p.known || p.err != nil || p.recorded == 0 {
		return p.ns, p.err == nil, p.err
	}
	s := p.stream
	v := s.device
	switch {
	case s.done >= p.after:
	case !ask:
		return ns, false, nil
	default:
		r := C.tutti_cuda_event_query(v.driver.table, v.ctx, p.events[p.recorded-1])
		if r == notReady {
			return ns, false, nil
		}
		if p.err = v.check(r, "cuEventQuery"); p.err != nil {
			s.failLocked(p.err)
			return ns, false, p.err
		}
		s.done = max(s.done, p.after)
	}
	for i := range p.marked - 1 {
		from, to := p.positions[i], p.positions[i+1]
		if from == to {
			continue
		}
		a := C.tutti_cuda_event_elapsed(v.driver.table, v.ctx, p.events[from], p.events[to])
		if a.result == notReady { // another event behind the same work is done already
			return [tensor.Laps]int64{}, false, nil
		}
		if p.err = v.check(a.result, "cuEventElapsedTime"); p.err != nil {
			return ns, false, p.err
		}
		p.ns[i] = nanoseconds(a.ms)
	}
	p.known = true
	return p.ns, true, nil
}

func nanoseconds(ms C.float) int64 { return int64(float64(ms) * 1e6) }

// elapsed returns the nanoseconds between two events that their streams have reached, to about 0.5 us.
func (v *Device) elapsed(from, to C.cu_event) (int64, error) {
	a := C.tutti_cuda_event_elapsed(v.driver.table, v.ctx, from, to)
	return nanoseconds(a.ms), v.check(a.result, "cuEventElapsedTime")
}

// Wait implements tensor.Span.
func (p *span) Wait() error {
	s := p.stream
	s.mu.Lock()
	if p.known || p.err != nil || p.recorded == 0 || s.closed {
		s.mu.Unlock()
		return p.err
	}
	e := p.events[p.recorded-1]
	s.mu.Unlock()
	v := s.device
	return v.check(C.tutti_cuda_event_sync(v.driver.table, v.ctx, e), "cuEventSynchronize")
}

// Start implements tensor.Span.
func (p *span) Start() (at time.Time, within time.Duration, err error) {
	s := p.stream
	s.mu.Lock()
	e, err := p.events[0], p.err
	s.mu.Unlock()
	if err != nil || e == nil {
		return at, 0, fmt.Errorf("%s: stream '%s' has no start of a measurement: %w", s.Place(), s.name, err)
	}
	return s.device.clock.placed(s.device, e, p.submitted)
}

// Release implements tensor.Span.
func (p *span) Release() {
	s := p.stream
	s.mu.Lock()
	p.leaveLocked()
	if i := slices.Index(s.spans, p); i >= 0 {
		s.spans = slices.Delete(s.spans, i, i+1)
	}
	s.mu.Unlock()
	events := p.events
	*p = span{events: events}
	v := s.device
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spans = append(v.spans, p)
}

// leaveLocked takes the span's events out of the marks of its stream.
func (p *span) leaveLocked() {
	s := p.stream
	s.marks = slices.DeleteFunc(s.marks, func(m mark) bool { return m.timed && m.waiters == 0 && slices.Contains(p.events[:p.recorded], m.event) })
}

// closeLocked reads what a stream that is closed has measured, and takes the events: spans may be released after their device is closed.
// The caller holds the stream's lock and has waited for its work.
func (p *span) closeLocked() {
	_, ok, _ := p.readLocked(true)
	if !ok && p.err == nil {
		p.err = fmt.Errorf("%s: stream '%s' is closed", p.stream.Place(), p.stream.name)
	}
	v := p.stream.device
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spans = append(v.spans, &span{events: p.events})
	p.events = [tensor.Laps + 1]C.cu_event{}
}

// destroyEvents ends the events of a device that is closed. The caller holds v.mu.
func (v *Device) destroyEvents() error {
	list := v.idle
	for _, p := range v.spans {
		list = append(list, p.events[:]...)
	}
	list = append(list, v.clock.event)
	v.idle, v.spans, v.clock.event = nil, nil, nil
	var errs []error
	for _, e := range list {
		if e != nil {
			errs = append(errs, v.check(C.tutti_cuda_event_destroy(v.driver.table, v.ctx, e), "cuEventDestroy"))
		}
	}
	return errors.Join(errs...)
}
