package main

import (
	"math"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/scheduler/sim"
)

// TestBatchTimes checks that a line's bound follows from the batches of the line alone, and from their times in the model.
func TestBatchTimes(t *testing.T) {
	t.Parallel()
	of := func(size, count uint64, each time.Duration) infer.BatchStats {
		d := infer.Duration{Count: count, Ns: count * uint64(each)}
		return infer.BatchStats{BatchSize: size, ComputeInfer: d, ComputeInput: infer.Duration{Count: count, Ns: 1e12}}
	}
	const ms = time.Millisecond
	before := batchTimes{{of(1, 3, 100*ms), of(8, 5, 100*ms)}, {of(16, 7, 50*ms)}}
	after := batchTimes{
		{of(1, 3, 100*ms), {BatchSize: 8, ComputeInfer: infer.Duration{Count: 15, Ns: 5*uint64(100*ms) + 10*uint64(9*ms)}}, of(16, 30, 13*ms)},
		{{BatchSize: 16, ComputeInfer: infer.Duration{Count: 9, Ns: 7*uint64(50*ms) + 2*uint64(20*ms)}}},
	}
	graph := sim.Graph{Nodes: []sim.Node{{Name: "a", Fixed: 1, MaxBatch: 16}, {Name: "b", Fixed: 1, MaxBatch: 16, After: []int{0}}}}
	timed, err := after.since(before).apply(&graph)
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond }
	// 10 batches of 8 in 9 ms and 30 of 16 in 13 ms: 5 ms, and half a ms a row.
	if n := timed.Nodes[0]; !near(n.Fixed, 5*ms) || !near(n.PerRow, ms/2) {
		t.Errorf("a batch takes %v and %v a row, want 5ms and 500µs", n.Fixed, n.PerRow)
	}
	if n := timed.Nodes[1]; !near(n.Fixed, 20*ms) || n.PerRow != 1 || n.MaxBatch != 16 || len(n.After) != 1 {
		t.Errorf("batches of one size: %+v, want 20ms", n)
	}
	// 560 and 32 rows in 480 and 40 ms; in time are 28: 5 % of the first time and 87.5 % of the second.
	if w := after.since(before).wasted(28); math.Abs(w-(1-(480*0.05+40*0.875)/520)) > 1e-9 {
		t.Errorf("%v of the time is wasted", w)
	}
	if graph.Nodes[0].Fixed != 1 {
		t.Error("the graph itself has changed")
	}
	if _, err := after.since(after).apply(&graph); err == nil {
		t.Error("a model without batches has times")
	}
}
