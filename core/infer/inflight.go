package infer

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

var (
	// ErrFull is wrapped by the refusal of a request for which there is no room now.
	ErrFull = errors.New("no room for another request")
	// ErrTooLarge is wrapped by that of a request for which there never is.
	ErrTooLarge = errors.New("too large")
)

// inFlightRetry is when a refused request may find room: the requests that took it
// are answered by then, or it is as good a guess as any.
const inFlightRetry = time.Second

// InFlight counts the bytes of the requests that are being received, executed and
// answered by all front ends together, and refuses requests beyond a limit. What
// models need to execute is theirs, and not counted. A nil InFlight counts nothing.
type InFlight struct {
	limit   int64 // 0 for none
	bytes   atomic.Int64
	refused atomic.Uint64
}

// NewInFlight returns a count of nothing, with a limit in bytes; 0 for none.
func NewInFlight(limit int64) *InFlight { return &InFlight{limit: max(limit, 0)} }

// Limit returns the limit in bytes, 0 for none.
func (f *InFlight) Limit() int64 {
	if f == nil {
		return 0
	}
	return f.limit
}

// Bytes returns what is in flight now.
func (f *InFlight) Bytes() int64 { return f.bytes.Load() }

// Refused returns how many requests were refused so far.
func (f *InFlight) Refused() uint64 { return f.refused.Load() }

// Admit refuses a request of a size yet unknown while there is no room at all.
//
// hot: no allocation unless it refuses.
func (f *InFlight) Admit() error {
	if f == nil || f.limit == 0 || f.bytes.Load() < f.limit {
		return nil
	}
	return f.refuse("no room for another request")
}

// Exceeded refuses what is about to be received while too much is in flight.
//
// hot: no allocation unless it refuses.
func (f *InFlight) Exceeded() error {
	if f == nil || f.limit == 0 || f.bytes.Load() <= f.limit {
		return nil
	}
	return f.refuse("no room for a request that has come")
}

// Add counts n bytes that nobody can refuse any more; they are given back by Give.
func (f *InFlight) Add(n int64) {
	if f != nil {
		f.bytes.Add(n)
	}
}

// Give takes n bytes back that Add, or Take, has counted.
func (f *InFlight) Release(n int64) {
	if f != nil {
		f.bytes.Add(-n)
	}
}

// take counts n bytes of a request that has had bytes before, unless that is too much.
func (f *InFlight) take(had, n int64) error {
	switch {
	case f == nil:
		return nil
	case f.limit == 0:
		f.bytes.Add(n)
		return nil
	case n > f.limit || had > f.limit-n:
		return f.tooLarge(had, n)
	case f.bytes.Load() > f.limit-n: // without a trace in the count, for the sake of others
		return f.refuse(noRoom(n))
	case f.bytes.Add(n) > f.limit:
		f.bytes.Add(-n)
		return f.refuse(noRoom(n))
	}
	return nil
}

func noRoom(n int64) string { return fmt.Sprintf("no room for %d bytes of a request", n) }

func (f *InFlight) refuse(what string) error {
	f.refused.Add(1)
	text := fmt.Sprintf("%s: %d bytes are in flight, and the limit is %d; use --max-inflight-bytes to change it", what, f.bytes.Load(), f.limit)
	return &status.Error{Code: status.Unavailable, Msg: text, Err: ErrFull, RetryAfter: inFlightRetry}
}

func (f *InFlight) tooLarge(had, n int64) error {
	f.refused.Add(1)
	size := n
	if had <= math.MaxInt64-n {
		size += had
	}
	return status.Errorf(status.InvalidArg, "request of %d bytes is %w: at most %d bytes may be in flight; use --max-inflight-bytes to change it", size, ErrTooLarge, f.limit)
}

// Charge is what one request takes of an InFlight. It is used by one goroutine at a
// time; the zero Charge takes nothing.
type Charge struct {
	of *InFlight
	n  int64
}

// Charge returns one that has taken nothing yet.
func (f *InFlight) Charge() Charge { return Charge{of: f} }

// Take charges n more bytes, or refuses them: as Unavailable when others have the
// room, as InvalidArg with ErrTooLarge when the request alone is too much.
//
// hot: no allocation unless it refuses.
func (c *Charge) Acquire(n int64) error {
	if n <= 0 {
		return nil
	}
	err := c.of.take(c.n, n)
	if err == nil {
		c.n += n
	}
	return err
}

// Add charges n bytes of an answer, which is not refused: its work is done.
func (c *Charge) Add(n int64) {
	if n > 0 {
		c.of.Add(n)
		c.n += n
	}
}

// Adopt takes over n bytes that Add of the InFlight has counted.
func (c *Charge) Adopt(n int64) { c.n += n }

// Bytes returns what is charged.
func (c *Charge) Bytes() int64 { return c.n }

// Give gives n of the bytes back.
func (c *Charge) Shrink(n int64) {
	n = min(n, c.n)
	c.of.Release(n)
	c.n -= n
}

// Release gives everything back; it may be called again.
func (c *Charge) Release() {
	if c.n > 0 {
		c.of.Release(c.n)
	}
	*c = Charge{}
}

// Move returns the charge and leaves c without any: it has a new holder.
func (c *Charge) Move() Charge {
	m := *c
	*c = Charge{}
	return m
}
