package ring_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// open returns a store and the tracer that fills it.
func open(tb testing.TB, bytes int64, s inspect.Sampling) (*ring.Store, *tracing.Tracer) {
	tb.Helper()
	store, err := ring.New(bytes, s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{store}, All: true})
	if err != nil {
		tb.Fatal(err)
	}
	return store, tr
}

// request traces a request of an ensemble with n steps that lasts took ns.
func request(tr *tracing.Tracer, model, id string, n int, took int64, err error) tracing.TraceID {
	x := tr.Sample(model, 1, id)
	x.SetModel(3, true)
	at := x.Record().BeganAt
	x.Stamp(tracing.HTTPRecvStart, at)
	x.Stamp(tracing.HTTPRecvEnd, at+took/10)
	x.Stamp(tracing.RequestStart, at+took/10)
	for i := range n {
		ready := at + took/10 + int64(i)*took/20
		x.Step(&tracing.Step{
			Node: int32(i), After: int32(i) - 1, Model: "step" + strconv.Itoa(i), Version: 1, Ready: ready, Enqueued: ready, Done: ready + took/20,
			Execution: tracing.Execution{
				Batch: x.NextBatch(), Start: ready + took/100, InputEnd: ready + took/90, InferEnd: ready + took/30, End: ready + took/25,
				Rows: 1, BatchRows: 8, Members: 8, Before: 12, BeforeEnd: ready,
			},
		})
	}
	x.Fail(err)
	x.Param("tenant", "t"+id)
	x.Stamp(tracing.InferResponseComplete, at+took*9/10)
	x.Stamp(tracing.RequestEnd, at+took*9/10)
	x.Stamp(tracing.HTTPSendStart, at+took*9/10)
	x.Stamp(tracing.HTTPSendEnd, at+took)
	name := x.ID()
	x.End()
	return name
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s, tr := open(t, 1<<20, inspect.Sampling{Failed: true, Slow: true, Every: 1})
	request(tr, "a", "1", 2, 1e6, nil)                // the slowest
	request(tr, "a", "2", 2, 1e5, nil)                // sampled
	request(tr, "b", "3", 3, 2e6, errors.New("gone")) // failed
	id := request(tr, "a", "4", 1, 2e5, nil)          // sampled
	tests := []struct {
		name string
		q    inspect.TraceQuery
		want []string
	}{
		{"all", inspect.TraceQuery{}, []string{"4", "3", "2", "1"}},
		{"slow", inspect.TraceQuery{Retained: "slow"}, []string{"1"}},
		{"failed", inspect.TraceQuery{Status: "failed"}, []string{"3"}},
		{"code", inspect.TraceQuery{Status: "internal"}, []string{"3"}},
		{"ok", inspect.TraceQuery{Status: "ok"}, []string{"4", "2", "1"}},
		{"model", inspect.TraceQuery{Model: "b"}, []string{"3"}},
		{"step", inspect.TraceQuery{Model: "step1"}, []string{"3", "2", "1"}},
		{"request", inspect.TraceQuery{Request: "2"}, []string{"2"}},
		{"trace", inspect.TraceQuery{TraceID: id.String()}, []string{"4"}},
		{"long", inspect.TraceQuery{MinNs: 5e5}, []string{"3", "1"}},
		{"short", inspect.TraceQuery{MaxNs: 3e5}, []string{"4", "2"}},
		{"param", inspect.TraceQuery{Param: "tenant", Value: "t2"}, []string{"2"}},
		{"no such param", inspect.TraceQuery{Param: "tenan"}, nil},
		{"past", inspect.TraceQuery{ToUs: 1}, nil},
		{"page", inspect.TraceQuery{Limit: 2}, []string{"4", "3"}},
		{"next page", inspect.TraceQuery{Limit: 2, Cursor: 3}, []string{"2", "1"}},
		{"news", inspect.TraceQuery{After: 2}, []string{"4", "3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			list, err := s.Traces(&tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range list.Traces {
				got = append(got, x.Request)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (list.Next != 0) != (tt.name == "page") {
				t.Errorf("next is %d", list.Next)
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	s, tr := open(t, 1<<20, inspect.Sampling{Every: 1})
	id := request(tr, "e", "r", 2, 1e6, nil)
	v, err := s.FindTrace(id.String())
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, p := range v.Split {
		sum += p.Ns
	}
	if sum != v.DurationNs || v.DurationNs != 1e6 || len(v.Spans) != 2 || !v.Spans[1].Critical {
		t.Errorf("a trace of 1 ms: %+v", v)
	}
	if again, err := s.FindTrace(v.ID + "-" + v.Span); err != nil || again.Span != v.Span {
		t.Errorf("the same by its span: %+v, %v", again, err)
	}
	if _, err := s.FindTrace(v.ID + "-0"); status.CodeOf(err) != status.NotFound {
		t.Errorf("another span: %v", err)
	}
	if _, err := s.FindTrace(tracing.TraceID{1}.String()); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unknown trace: %v", err)
	}
	if _, err := s.FindTrace("1"); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("a wrong id: %v", err)
	}
	if _, err := s.FindBatch(0); status.CodeOf(err) != status.NotFound {
		t.Errorf("no batch: %v", err)
	}
	s.Batch(&tracing.Batch{Execution: tracing.Execution{Batch: 5, Members: 2}, Model: "m", Known: 1, Traces: [tracing.BatchMembers]tracing.TraceID{id}})
	b, err := s.FindBatch(5)
	if err != nil || b.Model != "m" || b.Traces[0] != id.String() {
		t.Errorf("batch %+v, %v", b, err)
	}
}

// TestSampling checks that new sampling rules apply at once.
func TestSampling(t *testing.T) {
	t.Parallel()
	s, tr := open(t, 1<<20, inspect.Sampling{})
	gone := errors.New("gone")
	for range 10 {
		request(tr, "a", "none", 1, 100, gone)
		request(tr, "a", "none", 1, 100, nil)
	}
	if err := s.SetSampling(inspect.Sampling{Failed: true}); err != nil {
		t.Fatal(err)
	}
	request(tr, "a", "some", 1, 1e9, nil)
	request(tr, "a", "some", 1, 100, gone)
	list, err := s.Traces(&inspect.TraceQuery{})
	if err != nil || len(list.Traces) != 1 || list.Traces[0].Retained != "failed" {
		t.Errorf("%+v, %v", list, err)
	}
	if f := s.Stats(); f.Rings[0].Traces != 1 || f.Rings[1].Traces+f.Rings[2].Traces+f.Rings[3].Traces != 0 {
		t.Errorf("%+v", f)
	}
	x := tr.SampleFrom("a", 1, "wanted", &tracing.Origin{Retain: true})
	x.Stamp(tracing.RequestStart, x.Record().BeganAt)
	x.Stamp(tracing.RequestEnd, x.Record().BeganAt+100)
	x.End()
	list, err = s.Traces(&inspect.TraceQuery{Request: "wanted", Retained: "requested"})
	if err != nil || len(list.Traces) != 1 || list.Traces[0].Retained != "requested" {
		t.Errorf("of a request whose client asked: %+v, %v", list, err)
	}
	for _, bytes := range []int64{-1, 0, ring.MinBytes - 1, ring.MaxBytes + 1} {
		if _, err := ring.New(bytes, inspect.Sampling{}); status.CodeOf(err) != status.InvalidArg {
			t.Errorf("a store of %d bytes: %v", bytes, err)
		}
	}
}

// TestBudget checks that 200 MB hold 100,000 traces of five steps.
func TestBudget(t *testing.T) {
	t.Parallel()
	s, tr := open(t, 200_000_000, inspect.Sampling{Every: 1})
	for range 100_000 {
		request(tr, "an ensemble's name", "0123456789abcdef", 5, 5e6, nil)
	}
	sampled := s.Stats().Rings[3]
	if sampled.Traces != 100_000 {
		t.Errorf("%d traces are kept in %d bytes, expected 100000", sampled.Traces, sampled.Bytes)
	}
	t.Logf("%d bytes per trace", sampled.Used/int64(sampled.Traces))
}

// TestConcurrent checks searches while traces are stored.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s, tr := open(t, 1<<20, inspect.Sampling{Failed: true, Slow: true, Every: 1})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				id := request(tr, "m"+strconv.Itoa(i%3), strconv.Itoa(i), i%20, int64(i), nil)
				if i%100 != g {
					continue
				}
				if _, err := s.Traces(&inspect.TraceQuery{Limit: 1000, Request: "1"}); err != nil {
					t.Error(err)
				}
				if _, err := s.FindTrace(id.String()); err != nil && status.CodeOf(err) != status.NotFound {
					t.Error(err)
				}
				s.Quantiles("m1")
			}
		})
	}
	wg.Wait()
	s.Close()
	if list, err := s.Traces(&inspect.TraceQuery{}); err != nil || len(list.Traces) != 0 {
		t.Errorf("a closed store: %v, %v", list, err)
	}
	request(tr, "m", "1", 1, 1, nil)
}

func BenchmarkStore(b *testing.B) {
	for name, every := range map[string]uint32{"all": 1, "few": 100} {
		b.Run(name, func(b *testing.B) {
			_, tr := open(b, 64<<20, inspect.Sampling{Failed: true, Slow: true, Every: every})
			b.ReportAllocs()
			for b.Loop() {
				request(tr, "ensemble", "id", 5, 1e6, nil)
			}
		})
	}
}
