package backendtest

import (
	"syscall"
	"testing"
	"time"
)

// Overhead measures once, an execution of a model that hardly computes: us/call by the clock, and cpu-us/call of the whole
// process, threads of the runtime included.
func Overhead(b *testing.B, once func()) {
	b.Helper()
	once()
	b.ReportAllocs()
	used, begin := processor(b), time.Now()
	for b.Loop() {
		once()
	}
	clock, cpu := time.Since(begin), processor(b)-used
	b.ReportMetric(perCall(b, clock), "us/call")
	b.ReportMetric(perCall(b, cpu), "cpu-us/call")
}

func perCall(b *testing.B, d time.Duration) float64 {
	b.Helper()
	return d.Seconds() * 1e6 / float64(b.N)
}

// processor is the time that the process has used processors for.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
