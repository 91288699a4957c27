package steptest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Peer measures run, which processes a number of items, as one case of a benchmark, which must be
// named BenchmarkPeer. It reports the CPU time of the process as us/item. make bench-steps
// compares it with the case of the same name in the Python script of the package in
// bench/peers/steps.
func Peer(b *testing.B, name string, items int, run func()) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		run() // warms up: one-time work is not measured
		b.ReportAllocs()
		start := cpu(b)
		for b.Loop() {
			run()
		}
		b.ReportMetric(float64(cpu(b)-start)/float64(time.Microsecond)/float64(b.N*items), "us/item")
	})
}

// cpu returns the CPU time of the process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
