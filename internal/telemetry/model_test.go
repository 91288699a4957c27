package telemetry_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// totals is what a model counted.
type totals struct {
	Rows, Executions, Total, Queue uint64
	Compute                        phases
	Batches                        []batch
}

type phases struct{ Count, Input, Infer, Output uint64 }

type batch struct {
	Rows   int
	Phases phases
}

func phasesOf(t telemetry.Totals) phases {
	return phases{t.Count, t.InputNs, t.InferNs, t.OutputNs}
}

func totalsOf(m *telemetry.Model) totals {
	out := totals{m.Rows(), m.Executions(), m.TotalNs(), m.QueueNs(), phasesOf(m.Requests()), nil}
	for rows, t := range m.Batches {
		out.Batches = append(out.Batches, batch{rows, phasesOf(t)})
	}
	return out
}

func TestModel(t *testing.T) {
	t.Parallel()
	times := &telemetry.Times{Start: 1000, InputEnd: 1020, InferEnd: 1320, End: 1325}
	one := phases{1, 20, 300, 5}
	tests := []struct {
		name string
		do   func(*telemetry.Model)
		want totals
	}{
		{"nothing", func(*telemetry.Model) {}, totals{}},
		{
			"one request", func(m *telemetry.Model) {
				m.Executed(1, times)
				m.Succeeded(1, 900, times)
			},
			totals{1, 1, 425, 100, one, []batch{{1, one}}},
		},
		{
			"one request alone", func(m *telemetry.Model) { m.Alone(3, 900, times) },
			totals{3, 1, 425, 100, one, []batch{{3, one}}},
		},
		{
			"one request alone, larger than any counter of its own", func(m *telemetry.Model) { m.Alone(100, 900, times) },
			totals{100, 1, 425, 100, one, []batch{{100, one}}},
		},
		{
			"alone and in company", func(m *telemetry.Model) {
				m.Alone(2, 900, times)
				m.Executed(2, times)
				m.Succeeded(1, 900, times)
				m.Succeeded(1, 900, times)
			},
			totals{4, 2, 3 * 425, 300, phases{3, 60, 900, 15}, []batch{{2, phases{2, 40, 600, 10}}}},
		},
		{
			// Each request counts the time of the whole batch, the batch counts it once.
			"two requests in a batch", func(m *telemetry.Model) {
				m.Executed(5, times)
				m.Succeeded(2, 900, times)
				m.Succeeded(3, 990, times)
			},
			totals{5, 1, 425 + 335, 100 + 10, phases{2, 40, 600, 10}, []batch{{5, one}}},
		},
		{
			"batch sizes", func(m *telemetry.Model) {
				for _, rows := range []int{1000, 64, 0, 65, 63, 2, 64} {
					m.Executed(rows, times)
				}
			},
			totals{
				Executions: 7,
				Batches:    []batch{{0, one}, {2, one}, {63, one}, {64, phases{2, 40, 600, 10}}, {65, one}, {1000, one}},
			},
		},
		{
			"time that runs backwards", func(m *telemetry.Model) {
				m.Succeeded(1, 5000, &telemetry.Times{Start: 4000, InputEnd: 3000, InferEnd: 2000, End: 1000})
			},
			totals{Rows: 1, Compute: phases{Count: 1}},
		},
		{
			"ensemble", func(m *telemetry.Model) {
				m.SucceededSum(4, 100, 200, &telemetry.Sums{Input: 20, Infer: 30, Output: 40})
				m.SucceededSum(100, 100, 200, &telemetry.Sums{Infer: 30})
			},
			totals{
				Rows: 104, Executions: 2, Total: 200, Compute: phases{2, 20, 60, 40},
				Batches: []batch{{4, phases{1, 20, 30, 40}}, {100, phases{1, 0, 30, 0}}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &telemetry.Model{}
			tt.do(m)
			if diff := cmp.Diff(tt.want, totalsOf(m)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	m := &telemetry.Model{}
	m.Failed(telemetry.Backend, 10)
	m.Failed(telemetry.Backend, 20)
	m.Failed(telemetry.Canceled, -5)
	want := map[string][2]uint64{"REJECTED": {}, "CANCELED": {1, 0}, "BACKEND": {2, 30}, "OTHER": {}}
	got := map[string][2]uint64{}
	for r := range m.Failures {
		n, ns := m.Failures[r].Load()
		got[telemetry.Reason(r).String()] = [2]uint64{n, ns}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.Rows() != 0 || m.LastInference() != 0 {
		t.Error("a failed request counts as an inference")
	}
}

// TestBatchesStops checks that the iteration can stop at small and at large sizes.
func TestBatchesStops(t *testing.T) {
	t.Parallel()
	m := &telemetry.Model{}
	for _, rows := range []int{1, 2, 70, 80} {
		m.Executed(rows, &telemetry.Times{})
	}
	for _, last := range []int{1, 2, 70, 80} {
		var got int
		for rows := range m.Batches {
			if got = rows; rows == last {
				break
			}
		}
		if got != last {
			t.Errorf("ended at %d, want %d", got, last)
		}
	}
}

func TestLastInference(t *testing.T) {
	t.Parallel()
	for _, ago := range []time.Duration{0, time.Hour, -time.Hour} {
		m := &telemetry.Model{}
		if got := m.LastInference(); got != 0 {
			t.Errorf("before the first request: %d", got)
		}
		before := time.Now()
		m.Succeeded(1, 0, &telemetry.Times{End: telemetry.Now() - int64(ago)})
		after := time.Now()
		got := time.UnixMilli(int64(m.LastInference())).Add(ago)
		// The two clocks are read one after the other, and the result is whole milliseconds.
		if got.Before(before.Add(-time.Second)) || got.After(after.Add(time.Second)) {
			t.Errorf("%s ago: %s, want one from %s to %s", ago, got, before, after)
		}
	}
}

func TestModelConcurrent(t *testing.T) {
	t.Parallel()
	const workers, rounds, lowest, sizes = 4, 300, 60, 10
	m := &telemetry.Model{}
	times := &telemetry.Times{Start: 1, InputEnd: 2, InferEnd: 4, End: 7}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range rounds {
				rows := lowest + i%sizes
				m.Queued(2)
				m.Executed(rows, times)
				m.Succeeded(rows, 0, times)
				m.Failed(telemetry.Other, 1)
				m.Queued(-2)
				_ = m.Executions()
			}
		})
	}
	wg.Wait()
	const n = workers * rounds
	want := totals{Rows: n * (2*lowest + sizes - 1) / 2, Executions: n, Total: 7 * n, Queue: n, Compute: phases{n, n, 2 * n, 3 * n}}
	for i := range sizes {
		want.Batches = append(want.Batches, batch{lowest + i, phases{n / sizes, n / sizes, 2 * n / sizes, 3 * n / sizes}})
	}
	if diff := cmp.Diff(want, totalsOf(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if failed, _ := m.Failures[telemetry.Other].Load(); failed != n || m.Pending() != 0 {
		t.Errorf("%d failures and %d pending, want %d and none", failed, m.Pending(), n)
	}
}

// TestNewBatchSizes checks that several goroutines can count new batch sizes concurrently.
func TestNewBatchSizes(t *testing.T) {
	t.Parallel()
	const workers, sizes = 4, 20
	for range 50 {
		m := &telemetry.Model{}
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				<-begin
				for i := range sizes {
					m.Executed(55+w*i, &telemetry.Times{})
				}
			})
		}
		close(begin)
		wg.Wait()
		if got := m.Executions(); got != workers*sizes {
			t.Fatalf("%d executions, want %d", got, workers*sizes)
		}
	}
}
