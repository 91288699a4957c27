package infer_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

func TestInFlight(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(100)
	a, b := f.Charge(), f.Charge()
	steps := []struct {
		name     string
		take     error
		is       error
		now      int64
		refusals uint64
	}{
		{"all but one", a.Acquire(99), nil, 99, 0},
		{"too much with the rest", b.Acquire(2), infer.ErrFull, 99, 1},
		{"what there is", b.Acquire(1), nil, 100, 1},
		{"nothing is always there", b.Acquire(0), nil, 100, 1},
		{"too much alone, together with what it has", a.Acquire(2), infer.ErrTooLarge, 100, 2},
		{"too much alone", b.Acquire(math.MaxInt64), infer.ErrTooLarge, 100, 3},
		{"one of unknown size", f.Admit(), infer.ErrFull, 100, 4},
	}
	for _, s := range steps {
		if !errors.Is(s.take, s.is) || s.is == nil && s.take != nil {
			t.Errorf("%s: %v, want %v", s.name, s.take, s.is)
		}
	}
	if f.Bytes() != 100 || f.Refused() != 4 {
		t.Errorf("%d bytes, %d refused, want 100 and 4", f.Bytes(), f.Refused())
	}
	a.Add(50) // a response is never refused
	a.Shrink(20)
	if got := f.Bytes(); got != 130 {
		t.Errorf("%d bytes with a response, want 130", got)
	}
	moved := a.Move()
	a.Release()
	b.Release()
	moved.Release()
	moved.Release()
	if f.Bytes() != 0 || f.Admit() != nil {
		t.Errorf("%d bytes at the end", f.Bytes())
	}
}

func TestInFlightErrors(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(10)
	c, other := f.Charge(), f.Charge()
	if err := c.Acquire(8); err != nil {
		t.Fatal(err)
	}
	full, large := other.Acquire(3), other.Acquire(11)
	const (
		wantFull  = "no room for 3 bytes of a request: 8 bytes are in flight, and the limit is 10; use --max-inflight-bytes to change it"
		wantLarge = "request of 11 bytes is too large: at most 10 bytes may be in flight; use --max-inflight-bytes to change it"
	)
	if status.CodeOf(full) != status.Unavailable || status.Text(full) != wantFull || status.RetryAfter(full) != time.Second {
		t.Errorf("full: %v, %v, %v", status.CodeOf(full), full, status.RetryAfter(full))
	}
	if status.CodeOf(large) != status.InvalidArg || status.Text(large) != wantLarge || status.RetryAfter(large) != 0 {
		t.Errorf("large: %v, %v", status.CodeOf(large), large)
	}
}

// TestInFlightWithoutLimit checks that an unlimited counter counts and that a nil one does nothing.
func TestInFlightWithoutLimit(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(0)
	for _, c := range []infer.Charge{f.Charge(), (*infer.InFlight)(nil).Charge(), {}} {
		if err := c.Acquire(math.MaxInt64 / 2); err != nil {
			t.Error(err)
		}
		c.Add(5)
		c.Release()
	}
	if f.Bytes() != 0 || f.Admit() != nil || (*infer.InFlight)(nil).Admit() != nil {
		t.Errorf("%d bytes", f.Bytes())
	}
}

// TestInFlightTogether acquires and releases from many goroutines and checks that the limit is never exceeded and
// that nothing is left at the end.
func TestInFlightTogether(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(10)
	var held, most int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				c := f.Charge()
				if c.Acquire(3) != nil {
					continue
				}
				mu.Lock()
				held += 3
				most = max(most, held)
				mu.Unlock()
				mu.Lock()
				held -= 3
				mu.Unlock()
				c.Release()
			}
		})
	}
	wg.Wait()
	if f.Bytes() != 0 || most > 10 {
		t.Errorf("%d bytes at the end, %d at most", f.Bytes(), most)
	}
}

func TestInFlightAllocations(t *testing.T) {
	f := infer.NewInFlight(1 << 20)
	if n := testing.AllocsPerRun(100, func() {
		c := f.Charge()
		if f.Admit() != nil || c.Acquire(100) != nil {
			t.Error("refused")
		}
		c.Add(5)
		c.Release()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
