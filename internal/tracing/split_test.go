package tracing_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// text prints parts as kind:ns.
func text(parts []tracing.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Kind.String() + ":" + string(rune('0'+(p.To-p.From)/10)) + " ")
	}
	return strings.TrimSpace(b.String())
}

func TestSplit(t *testing.T) {
	t.Parallel()
	run := tracing.Execution{Batch: 7, Start: 60, InputEnd: 70, InferEnd: 90, End: 100, Before: 6, BeforeEnd: 40}
	step := func(change func(*tracing.Step)) tracing.Step {
		s := tracing.Step{Node: 0, After: -1, Ready: 20, Enqueued: 20, Done: 110, Execution: run}
		change(&s)
		return s
	}
	tests := []struct {
		name string
		step tracing.Step
		want string
	}{
		{"queued", step(func(*tracing.Step) {}), "receive:1 scheduler:1 queue:2 scheduler:2 copies:1 compute:2 copies:1 scheduler:2 encode:1"},
		{"limited", step(func(s *tracing.Step) { s.Enqueued = 30 }), "receive:1 scheduler:1 limit:1 queue:1 scheduler:2 copies:1 compute:2 copies:1 scheduler:2 encode:1"},
		{"held back", step(func(s *tracing.Step) { s.Held = 50 }), "receive:1 scheduler:1 queue:2 scheduler:1 mates:1 copies:1 compute:2 copies:1 scheduler:2 encode:1"},
		{"newest", step(func(s *tracing.Step) { s.Newest = 50 }), "receive:1 scheduler:1 queue:2 mates:1 scheduler:1 copies:1 compute:2 copies:1 scheduler:2 encode:1"},
		{"padded", step(func(s *tracing.Step) { s.Elements, s.Padding = 4, 2 }), "receive:1 scheduler:1 queue:2 scheduler:2 copies:1 compute:1 padding:1 copies:1 scheduler:2 encode:1"},
		{"native", step(func(s *tracing.Step) { s.Native = true }), "receive:1 scheduler:1 queue:2 scheduler:2 copies:1 native:2 copies:1 scheduler:2 encode:1"},
		{"cached", step(func(s *tracing.Step) { s.Cached = true }), "receive:1 scheduler:1 cache:9 scheduler:1 encode:1"},
		{"refused", step(func(s *tracing.Step) { s.Batch = 0 }), "receive:1 scheduler:1 queue:9 scheduler:1 encode:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &tracing.Record{BeganAt: 10, Steps: []tracing.Step{tt.step}, Moments: []tracing.Moment{
				{Point: tracing.HTTPRecvStart, Ns: 0},
				{Point: tracing.HTTPRecvEnd, Ns: 10},
				{Point: tracing.RequestStart, Ns: 15},
				{Point: tracing.InferResponseComplete, Ns: 120},
				{Point: tracing.HTTPSendEnd, Ns: 130},
			}}
			if diff := cmp.Diff(tt.want, text(tracing.Split(r))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// whole checks that the parts cover the record without gaps.
func whole(t *testing.T, r *tracing.Record) {
	t.Helper()
	start, end := r.Bounds()
	at := start
	for _, p := range tracing.Split(r) {
		if p.From != at || p.To <= p.From || p.Step >= len(r.Steps) {
			t.Fatalf("part %s from %d to %d, expected it to begin at %d", p.Kind, p.From, p.To, at)
		}
		at = p.To
	}
	if at != end {
		t.Fatalf("the parts end at %d, expected %d", at, end)
	}
}

// TestSplitIsWhole checks the parts of arbitrary records, including impossible ones.
func TestSplitIsWhole(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	at := func() int64 { return rnd.Int64N(1000) }
	for range 5000 {
		r := &tracing.Record{BeganAt: at()}
		for range rnd.IntN(8) {
			r.Moments = append(r.Moments, tracing.Moment{Point: tracing.Point(rnd.IntN(16)), Ns: at()})
		}
		for range rnd.IntN(8) {
			s := tracing.Step{Node: rnd.Int32N(5), After: rnd.Int32N(6) - 1, SubRun: rnd.Int32N(3), Ready: at(), Enqueued: at(), Done: at(), Cached: rnd.IntN(4) == 0}
			s.Start, s.InputEnd, s.InferEnd, s.End = at(), at(), at(), at()
			s.Batch, s.BeforeEnd, s.Elements, s.Padding = rnd.Uint64N(3), at(), at(), at()
			s.Held, s.Newest = at()*rnd.Int64N(2), at()
			r.Steps = append(r.Steps, s)
		}
		whole(t, r)
		tracing.CriticalSteps(r)
	}
}

// TestSplitAtDevice splits a request of two steps at a device: the host had put both into its stream before it began with the first one.
func TestSplitAtDevice(t *testing.T) {
	t.Parallel()
	r := &tracing.Record{
		BeganAt: 10,
		Steps: []tracing.Step{
			{Node: 0, After: -1, Ready: 20, Enqueued: 20, Done: 30, Execution: tracing.Execution{
				Batch: 1, Start: 20, InputEnd: 20, InferEnd: 30, End: 30, Device: telemetry.Times{Start: 40, InputEnd: 50, InferEnd: 70, End: 70},
			}},
			{Node: 1, After: 0, Ready: 30, Enqueued: 30, Done: 40, Execution: tracing.Execution{
				Batch: 2, Start: 30, InputEnd: 30, InferEnd: 40, End: 40, Device: telemetry.Times{Start: 80, InputEnd: 80, InferEnd: 100, End: 100},
			}},
		},
		Moments: []tracing.Moment{
			{Point: tracing.HTTPRecvStart, Ns: 0},
			{Point: tracing.HTTPRecvEnd, Ns: 10},
			{Point: tracing.RequestStart, Ns: 10},
			{Point: tracing.InferResponseComplete, Ns: 110},
			{Point: tracing.HTTPSendEnd, Ns: 120},
		},
	}
	want := "receive:1 scheduler:1 compute:1 queue:1 copies:1 compute:2 queue:1 compute:2 scheduler:1 encode:1"
	if diff := cmp.Diff(want, text(tracing.Split(r))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
