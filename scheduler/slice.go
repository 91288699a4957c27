package scheduler

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

const (
	// sliceTime is how long background work executes beside online requests until others have their turn.
	sliceTime = int64(time.Millisecond) / 2
	// maxAsk bounds how long background work waits until it asks again.
	maxAsk = 5 * time.Millisecond
)

// Slice divides the background work of one goroutine that is not a request, for example reading rows, so that it gives way to online
// requests: beside them it executes in slices of half a millisecond, which take an 800th of the processors together with the slices of
// others and with inline background tasks. While the process is quiet nothing waits. A Slice is used by one goroutine.
type Slice struct {
	b     *Background
	begin int64 // of the slice, 0 while there is none or the process is quiet
}

// NewSlice returns the Slice of a goroutine. Online requests are counted only between Begin and End of the work.
func (b *Background) NewSlice() *Slice { return &Slice{b: b} }

// Next waits until more work may execute. Call it between pieces of some 100 microseconds at the most. It ends with the context.
func (s *Slice) Next(ctx context.Context) error {
	now := telemetry.Now()
	if s.begin != 0 {
		if now-s.begin < sliceTime {
			return nil
		}
		s.Yield()
	}
	for !s.b.Quiet(now) {
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
		now = telemetry.Now()
	}
	return nil
}

// Yield ends the slice. Call it before the goroutine waits for something else, and at the end of its work.
func (s *Slice) Yield() {
	if s.begin != 0 {
		s.b.Paced(s.begin, telemetry.Now())
		s.begin = 0
	}
}
