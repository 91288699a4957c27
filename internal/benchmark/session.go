package benchmark

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

// Load describes how requests are sent.
type Load struct {
	// Clients is the number of connections (over gRPC: of streams), each with at most one request, and one sequence, under way.
	Clients int
	// Rate is the number of requests per second of an open loop; 0 selects the closed loop.
	Rate float64
	// Constant selects equal gaps between the arrivals of an open loop; otherwise they are those of a Poisson process.
	Constant bool
	// Seed makes the arrivals repeatable.
	Seed uint64
}

// check returns the error of a load that cannot be.
func (l *Load) check() error {
	if l.Clients < 1 {
		return fmt.Errorf("%d clients send nothing, expected at least 1", l.Clients)
	}
	if l.Rate < 0 || math.IsNaN(l.Rate) || l.Rate > 1e7 {
		return fmt.Errorf("a rate of %v requests per second, expected more than 0 and at most 10 million", l.Rate)
	}
	return nil
}

// Session is a group of clients of one server. It is not safe for concurrent use, except for Interrupt.
type Session struct {
	load  Load
	group *load.Group
	rec   recorder

	turn     atomic.Int64 // of the requests of a closed loop
	stop     chan struct{}
	arrivals *arrivals
	alarms   []*alarm
	loop     *load.Loop // of the clients of a fast open loop, otherwise nil
	running  sync.WaitGroup
}

// Open returns a session that sends the given requests in turn. The caller must Close it. Connections open when the first
// requests are sent.
func Open(t load.Target, protocol string, requests []load.Request, l Load) (*Session, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	s := &Session{load: l}
	if l.Rate >= fast && t.CanLoop(protocol) {
		loop, err := load.NewLoop()
		if err != nil {
			return nil, err
		}
		s.loop, t.Loop = loop, loop
	}
	group, err := load.Dial(t, protocol, requests, l.Clients)
	if err != nil {
		return nil, errors.Join(err, s.closeLoop())
	}
	s.group = group
	return s, nil
}

// Interrupt ends the requests under way with errors. It may be called concurrently.
func (s *Session) Interrupt() { s.group.Interrupt() }

// Close ends the session.
func (s *Session) Close() error { return errors.Join(s.group.Close(), s.closeLoop()) }

func (s *Session) closeLoop() error {
	if s.loop == nil {
		return nil
	}
	return s.loop.Close()
}

// begin starts the loops of the clients.
func (s *Session) begin() error {
	now := time.Now()
	s.rec.now, s.stop = newRecord(now), make(chan struct{})
	if s.load.Rate <= 0 {
		for _, c := range s.group.Clients {
			s.running.Go(func() { s.closed(c) })
		}
		return nil
	}
	s.alarms = nil
	if s.loop != nil {
		s.arrivals = newArrivals(&s.load, now, tick)
		return s.beginDispatcher()
	}
	s.arrivals = newArrivals(&s.load, now, 0)
	for range s.group.Clients {
		a, err := newAlarm()
		if err != nil {
			return errors.Join(fmt.Errorf("there is no timer for each of %d clients: %w; fewer clients, or a higher limit of open files (ulimit -n), are needed", s.load.Clients, err), s.end())
		}
		s.alarms = append(s.alarms, a)
	}
	for i, c := range s.group.Clients {
		s.running.Go(func() { s.open(c, s.alarms[i]) })
	}
	return nil
}

// grace is how long end waits for responses before it interrupts the clients.
const grace = 5 * time.Second

// end stops the loops and waits for the responses under way.
func (s *Session) end() error {
	close(s.stop)
	for _, a := range s.alarms {
		a.stop()
	}
	late := time.AfterFunc(grace, s.Interrupt)
	s.running.Wait()
	for _, a := range s.alarms {
		a.close()
	}
	s.alarms = nil
	if !late.Stop() {
		return fmt.Errorf("the server did not respond within %v after the last request", grace)
	}
	return nil
}

// closed sends requests one after another.
func (s *Session) closed(c load.Client) {
	defer s.finish(c)
	b := backoff{sleep: s.sleep}
	for !s.stopped() {
		began := time.Now()
		err := c.Do(int(s.turn.Add(1) - 1))
		if !s.count(c, err, began, &b) {
			return
		}
	}
}

// open sends requests as they arrive.
func (s *Session) open(c load.Client, a *alarm) {
	defer s.finish(c)
	b := backoff{sleep: s.sleep}
	for {
		i, at := s.arrivals.take()
		if !a.wait(at) || s.stopped() {
			return
		}
		if !s.count(c, c.Do(i), at, &b) {
			return
		}
	}
}

// finish ends the sequence of a client that is under way, so that it does not keep a place in the model. Its request is not counted.
func (*Session) finish(c load.Client) { _ = load.Finish(c) }

func (s *Session) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// count records the result of a request that arrived at the given time. After an error without a response it waits, so that
// a lost server does not cost a core. It returns false when the client must stop.
func (s *Session) count(c load.Client, err error, arrived time.Time, b *backoff) bool {
	if err == nil {
		end := time.Now()
		if c, ok := c.(load.Received); ok && s.loop != nil {
			end = c.Received()
		}
		s.rec.success(end.Sub(arrived))
		if c, ok := c.(load.Streaming); ok {
			n, first := c.Responses()
			s.rec.responses(n, first.Sub(arrived))
		}
		b.wait = 0
		return true
	}
	if s.stopped() {
		return false // it was interrupted
	}
	s.rec.failure(err)
	if _, refused := errors.AsType[*load.ResponseError](err); refused {
		return true
	}
	return b.pause()
}

// sleep returns false when the session is stopped meanwhile.
func (s *Session) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-t.C:
		return true
	}
}

// backoff is the time that a client waits after errors in a row.
type backoff struct {
	wait  time.Duration
	sleep func(time.Duration) bool // returns false when the client must stop
}

const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// pause waits, longer each time. It returns false when the client must stop.
func (b *backoff) pause() bool {
	b.wait = min(max(2*b.wait, firstPause), lastPause)
	return b.sleep(b.wait)
}
