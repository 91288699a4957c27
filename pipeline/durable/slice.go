package durable

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// Background makes work in the background give way to online requests, as scheduler.Background does. Times are on the clock of
// telemetry.Now.
type Background interface {
	// Begin notes that work in the background begins; online requests are counted until End.
	Begin(now int64)
	// End notes the end of work that Begin has noted.
	End(now int64)
	// Quiet reports whether there are no online requests.
	Quiet(now int64) bool
	// Expecting reports whether an online request is to be expected soon, because there was one lately.
	Expecting(now int64) bool
	// Pace asks for a slice of work beside online requests. If ok is false, ask again after wait. Otherwise Paced must follow.
	Pace(now int64) (ok bool, wait time.Duration)
	// Paced ends the slice that began at begin.
	Paced(begin, now int64)
}

// noOnline is the Background of a process without online requests.
type noOnline struct{}

func (noOnline) Begin(int64)                      {}
func (noOnline) End(int64)                        {}
func (noOnline) Quiet(int64) bool                 { return true }
func (noOnline) Expecting(int64) bool             { return false }
func (noOnline) Pace(int64) (bool, time.Duration) { return true, 0 }
func (noOnline) Paced(int64, int64)               {}

const (
	// sliceTime is how long work beside online requests goes on until others have their turn.
	sliceTime = int64(time.Millisecond) / 2
	// maxAsk bounds how long it waits until it asks again.
	maxAsk = 5 * time.Millisecond
)

// slice divides the work of one goroutine that is not a request, for example reading rows, so that it gives way to online requests: beside
// them it is done in slices of half a millisecond, at the pace of a Background. While there are none nothing waits.
type slice struct {
	b      Background
	asking chan struct{} // of the process, has an element while a goroutine asks: each that asks wakes a processor every few milliseconds
	begin  int64         // of the slice, 0 while there is none or no online requests
}

// slice returns a slice that has not begun.
func (a *activities) slice() *slice { return &slice{b: a.s.Background, asking: a.asking} }

// next waits until more work may be done. Call it between pieces of some 100 microseconds at the most. It ends with the context.
func (s *slice) next(ctx context.Context) error {
	now := telemetry.Now()
	if s.begin != 0 {
		if now-s.begin < sliceTime {
			return nil
		}
		s.yield()
	}
	if s.b.Quiet(now) {
		return nil
	}
	select {
	case s.asking <- struct{}{}: // at once, also when the context has ended: a slice that need not wait is no reason to stop
	default:
		select {
		case s.asking <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-s.asking }()
	return s.ask(ctx)
}

// ask waits until there are no online requests, or a slice may begin.
func (s *slice) ask(ctx context.Context) error {
	for now := telemetry.Now(); !s.b.Quiet(now); now = telemetry.Now() {
		ok, wait := s.b.Pace(now)
		if ok {
			s.begin = now
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(wait, maxAsk)):
		}
	}
	return nil
}

// yield ends the slice. Call it before the goroutine waits for something else, and at the end of its work.
func (s *slice) yield() {
	if s.begin != 0 {
		s.b.Paced(s.begin, telemetry.Now())
		s.begin = 0
	}
}
