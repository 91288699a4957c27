package load_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

// scripted is a client whose requests return the result of its function.
type scripted struct {
	do   func(i int) error
	sent atomic.Int64
}

func (c *scripted) Do(i int) error {
	c.sent.Add(1)
	return c.do(i)
}

func (*scripted) Outputs() ([]load.Output, error) { return nil, nil }
func (*scripted) Close() error                    { return nil }

func good(int) error { return nil }

func TestRunClosed(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	a := &scripted{do: good}
	b := &scripted{do: func(i int) error {
		if i%3 == 0 {
			return bad
		}
		return nil
	}}
	r, err := load.Run([]load.Client{a, b}, load.Plan{Requests: 300})
	if err != nil {
		t.Fatal(err)
	}
	if sent := a.sent.Load() + b.sent.Load(); sent != 300 || r.Requests+r.Errors != 300 {
		t.Errorf("sent %d, %d with a response and %d failed, want 300", sent, r.Requests, r.Errors)
	}
	if r.Errors > 0 && !errors.Is(r.First, bad) {
		t.Errorf("first error %v, want %v", r.First, bad)
	}
	if r, err = load.Run([]load.Client{a}, load.Plan{Duration: time.Millisecond}); err != nil || r.Requests == 0 || r.Elapsed < time.Millisecond {
		t.Errorf("%d requests in %v, %v", r.Requests, r.Elapsed, err)
	}
}

// TestRunLeast checks that both loops send at least Plan.Least requests.
func TestRunLeast(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 1e5} {
		c := &scripted{do: good}
		r, err := load.Run([]load.Client{c, c}, load.Plan{Duration: 1, Least: 300, Rate: rate})
		if err != nil || r.Requests < 300 || r.Requests > 302 {
			t.Errorf("at rate %v: %d requests, %v, want 300", rate, r.Requests, err)
		}
	}
}

// TestRunHopeless checks that a run ends early when the server always fails.
func TestRunHopeless(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for _, rate := range []float64{0, 1e6} {
		c := &scripted{do: func(int) error { return bad }}
		r, err := load.Run([]load.Client{c}, load.Plan{Requests: 1000, Rate: rate})
		if err != nil || r.Requests != 0 || c.sent.Load() != 100 || !errors.Is(r.First, bad) {
			t.Errorf("at rate %v: %+v after %d requests, %v", rate, r, c.sent.Load(), err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	if _, err := load.Run(nil, load.Plan{Requests: 1}); err == nil {
		t.Error("no clients are no error")
	}
	if _, err := load.Run([]load.Client{&scripted{do: good}}, load.Plan{}); err == nil {
		t.Error("no requests are no error")
	}
}

// TestRunOpen checks that an open loop sends every request that arrives, however slow the server is.
func TestRunOpen(t *testing.T) {
	t.Parallel()
	c := &scripted{do: good}
	r, err := load.Run([]load.Client{c, c}, load.Plan{Requests: 200, Rate: 1e5, Seed: 1})
	if err != nil || r.Requests != 200 || c.sent.Load() != 200 || r.Errors != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if last := load.Schedule(&load.Plan{Rate: 1e5, Seed: 1}, 200)[199]; r.Elapsed < last {
		t.Errorf("all was sent after %v, the last request arrives after %v", r.Elapsed, last)
	}
}

// TestOpenCountsWaiting checks that an open loop's latency includes the wait for a free client.
func TestOpenCountsWaiting(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := []time.Time{now.Add(-3 * time.Minute), now.Add(-2 * time.Minute), now.Add(-time.Minute)}
	c := &scripted{do: good}
	samples, failed, err := load.Open(c, at, time.Hour)
	if len(samples) != 3 || failed != 0 || err != nil {
		t.Fatalf("%d samples, %d failed, %v", len(samples), failed, err)
	}
	for i, least := range []time.Duration{3 * time.Minute, 2 * time.Minute, time.Minute} {
		if samples[i] < least {
			t.Errorf("request %d took %v, want at least %v", i, samples[i], least)
		}
	}
	samples, failed, err = load.Open(c, at, 90*time.Second)
	if len(samples) != 1 || failed != 2 || !errors.Is(err, load.ErrLate) || c.sent.Load() != 4 {
		t.Errorf("with less patience %d samples, %d failed, %v, %d sent", len(samples), failed, err, c.sent.Load())
	}
}

// TestFailuresSent checks that the time from sending leaves out that in which a request waited for its client.
func TestFailuresSent(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	took := make([]time.Duration, 2)
	c := &scripted{do: func(i int) error {
		began := time.Now()
		defer func() { took[i] = time.Since(began) }()
		return bad
	}}
	now := time.Now()
	arrived, sent := load.OpenFailures(c, []time.Time{now.Add(-2 * time.Hour / 3), now.Add(-time.Hour / 3)})
	if len(arrived) != 2 || len(sent) != 2 {
		t.Fatalf("%d and %d times, want 2", len(arrived), len(sent))
	}
	for i, waited := range []time.Duration{2 * time.Hour / 3, time.Hour / 3} {
		if arrived[i] < waited || sent[i] < took[i] || sent[i] > arrived[i]-waited {
			t.Errorf("request %d: %v from its arrival and %v from sending, want %v more", i, arrived[i], sent[i], waited)
		}
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	const n, rate = 20000, 1000.0
	p := load.Plan{Rate: rate, Seed: 7}
	at := load.Schedule(&p, n)
	if !slices.Equal(at, load.Schedule(&p, n)) {
		t.Error("the same seed gives other arrivals")
	}
	p.Seed++
	if slices.Equal(at, load.Schedule(&p, n)) {
		t.Error("another seed gives the same arrivals")
	}
	if mean := at[n-1].Seconds() / n; mean < 0.97/rate || mean > 1.03/rate {
		t.Errorf("the gaps' mean is %v s, want %v", mean, 1/rate)
	}
	longer, before := 0, time.Duration(0)
	for _, a := range at {
		if (a - before).Seconds() > 1/rate {
			longer++
		}
		before = a
	}
	// For exponential gaps, a share of 1/e is longer than the mean.
	if share := float64(longer) / n; share < 0.355 || share > 0.381 {
		t.Errorf("%v of the gaps are longer than their mean, want 0.368", share)
	}
}
