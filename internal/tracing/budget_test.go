//go:build !race

package tracing_test

import (
	"testing"

	"github.com/tutti-server/tutti/internal/tracing"
)

// TestSampleAllocBudget checks that sampling does not allocate. It is not parallel: the runtime counts the
// allocations of all goroutines.
func TestSampleAllocBudget(t *testing.T) {
	off, _ := open(t, tracing.Settings{Level: []string{"OFF"}})
	rare, _ := open(t, tracing.Settings{Rate: "1000000"})
	for name, tr := range map[string]*tracing.Tracer{"off": off, "not this one": rare, "none": nil} {
		if got := testing.AllocsPerRun(200, func() {
			read := tr.Begin()
			read.End()
			x := tr.Sample("m", 1, "id")
			x.SetModel(1, false)
			read.Stamp(x, tracing.HTTPRecvStart, tracing.HTTPRecvEnd)
			x.Mark(tracing.HTTPSendStart)
			x.Stamp(tracing.RequestStart, 1)
			x.Step(&tracing.Step{Model: "step", Version: 1})
			x.Event(&tracing.Event{Kind: tracing.EventCacheHit})
			x.Fail(nil)
			x.Hold().End()
			x.End()
		}); got != 0 {
			t.Errorf("%s: %v allocations per request, want none", name, got)
		}
	}
}

func BenchmarkSampleOff(b *testing.B) {
	tr, err := tracing.New(tracing.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if tr.Sample("m", 1, "id") != nil {
			b.Fatal("traced")
		}
	}
}
