package simdev

import (
	"fmt"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
)

// Span implements tensor.Timer. Its durations have the simulated cost of operations, whether or not the stream really takes that time.
func (s *Stream) Span() (tensor.Span, error) {
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%s: stream '%s': the stream is closed", s.device.place, s.name)
	}
	return &span{stream: s}, nil
}

// span is a measurement. The machine's mu guards it.
type span struct {
	stream *Stream
	marks  [tensor.Laps + 1]moment
	marked int
	pushed uint64 // operations of the stream before and with the last mark
}

// moment is when a stream reached a mark.
type moment struct {
	at      time.Time
	skipped time.Duration // the simulated cost of the operations so far that took no time
}

// Mark implements tensor.Span.
func (p *span) Mark(own bool) error {
	s := p.stream
	m := s.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed || p.marked == len(p.marks) {
		return fmt.Errorf("%s: stream '%s': the stream is closed, or there are more than %d marks", s.device.place, s.name, len(p.marks))
	}
	i := p.marked
	p.marked++
	first := i
	if !own && i > 0 && p.pushed == s.pushed {
		first = i - 1
	}
	s.push(operation{run: func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if p.marks[i] = p.marks[first]; first == i {
			p.marks[i] = moment{time.Now(), s.skipped}
		}
		return nil
	}})
	p.pushed = s.pushed
	return nil
}

// Laps implements tensor.Span.
func (p *span) Laps(_ bool) (ns [tensor.Laps]int64, ok bool, err error) {
	m := p.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.stream.done < p.pushed {
		return ns, false, nil
	}
	if p.stream.err != nil {
		return ns, false, p.stream.err
	}
	for i := 1; i < p.marked; i++ {
		from, to := p.marks[i-1], p.marks[i]
		ns[i-1] = int64(to.at.Sub(from.at) + to.skipped - from.skipped)
	}
	return ns, true, nil
}

// Wait implements tensor.Span.
func (p *span) Wait() error {
	m := p.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return (&event{stream: p.stream, n: p.pushed}).wait()
}

// Start implements tensor.Span.
func (p *span) Start() (at time.Time, within time.Duration, err error) {
	m := p.stream.device.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.marks[0].at, 0, p.stream.err
}

// Release implements tensor.Span.
func (*span) Release() {}
