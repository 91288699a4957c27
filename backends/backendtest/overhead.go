package backendtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Overhead benchmarks once, an execution of a trivial model. It reports us/call (wall time) and cpu-us/call (CPU time of the process,
// with threads of the runtime and worker processes).
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

// processor returns the CPU time of the process and its descendants. For example, of Python workers, which a fork server has forked.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano()+r.Stime.Nano()) + descendants(b, "self")
}

// descendants returns the CPU time of the children of a process, and of theirs.
func descendants(b *testing.B, pid string) (used time.Duration) {
	b.Helper()
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		b.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(text)) {
			used += childTime(b, child) + descendants(b, child)
		}
	}
	return used
}

// childTime returns the CPU time of the threads of a process, in nanoseconds, from schedstat.
func childTime(b *testing.B, pid string) (used time.Duration) {
	b.Helper()
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		used += time.Duration(ns)
	}
	return used
}
