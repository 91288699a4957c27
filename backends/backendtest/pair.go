package backendtest

import (
	"slices"
	"testing"
	"time"
)

// pairedCalls is how often Pair calls each of both in one turn.
const pairedCalls = 50

// Pair benchmarks two executions of the same work in turns, so that other load on the machine disturbs both. One operation of the benchmark
// is a turn of each, 50 calls: with -benchtime 40x there are 40 pairs. It reports medians of the turns: wall time (us/call and
// other-us/call), CPU time with threads and worker processes (cpu-us/call and other-cpu-us/call), and the ratios of the pairs (ratio and
// cpu-ratio).
func Pair(b *testing.B, once, other func()) {
	b.Helper()
	once()
	other()
	found := map[string][]float64{}
	add := func(unit string, value float64) { found[unit] = append(found[unit], value) }
	for b.Loop() {
		clock, cpu := turn(b, once)
		otherClock, otherCPU := turn(b, other)
		add("us/call", clock)
		add("other-us/call", otherClock)
		add("ratio", clock/otherClock)
		add("cpu-us/call", cpu)
		add("other-cpu-us/call", otherCPU)
		add("cpu-ratio", cpu/otherCPU)
	}
	for unit, values := range found {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

// turn returns the wall and the CPU time of a call, in microseconds.
func turn(b *testing.B, once func()) (clock, cpu float64) {
	b.Helper()
	used, began := processor(b), time.Now()
	for range pairedCalls {
		once()
	}
	took := time.Since(began)
	used = processor(b) - used
	return took.Seconds() * 1e6 / pairedCalls, used.Seconds() * 1e6 / pairedCalls
}
