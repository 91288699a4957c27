package main

import (
	"encoding/binary"
	"hash"
	"hash/crc32"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardRounds is the number of rounds. Each round measures the path and then its floor.
	guardRounds = 31
	// guardSweep is the number of rounds between two garbage collections.
	guardSweep = 8
)

// measure returns the cost of a request on the path. The garbage collector is off while it counts, because a
// collection empties pools, which would then allocate again. GOMAXPROCS is 1, so that goroutines wake each other in
// the same order in every round.
func (p *guardPath) measure() guardFigure {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ours, floor := make([]float64, guardRounds), make([]float64, guardRounds)
	f := guardFigure{Path: p.name, Against: p.against, Allocations: math.Inf(1), Bytes: math.Inf(1)}
	for round := range guardRounds {
		if round%guardSweep == 0 {
			runtime.GC()
			p.run(p.calls)
			p.floor(p.floorCalls)
		}
		floor[round] = guardSpent(p.floor, p.floorCalls)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ours[round] = guardSpent(p.run, p.calls)
		runtime.ReadMemStats(&after)
		f.Allocations = min(f.Allocations, float64(after.Mallocs-before.Mallocs)/float64(p.calls))
		f.Bytes = min(f.Bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(p.calls))
	}
	f.CPU = guardRound(guardQuiet(ours) / guardQuiet(floor))
	f.Allocations, f.Bytes = guardRound(f.Allocations), guardRound(f.Bytes)
	return f
}

// guardRound rounds to three decimals.
func guardRound(v float64) float64 { return math.Round(v*1000) / 1000 }

// guardQuiet returns the first quartile of the rounds, which is the median of the faster half. Other load on the
// machine only adds time, and the minimum may be luck.
func guardQuiet(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/4]
}

// guardSpent returns the CPU time of the process for one of n calls.
func guardSpent(run func(n int), n int) float64 {
	before := guardClock()
	run(n)
	return float64(guardClock()-before) / float64(n)
}

func guardClock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// guardYardstick is a program with a fixed amount of work of the kinds that a request needs: pooled memory,
// counters, locks, calls through interfaces, clock reads, copies and a table lookup. On a slower machine it slows
// down as requests do.
type guardYardstick struct {
	pool  sync.Pool
	mu    sync.Mutex
	count [4]atomic.Int64
	sum   hash.Hash32
	began time.Time
}

const guardYard = "a fixed loop"

func newGuardYardstick() *guardYardstick {
	return &guardYardstick{
		pool: sync.Pool{New: func() any { return new([256]byte) }},
		sum:  crc32.New(crc32.MakeTable(crc32.Koopman)), began: time.Now(),
	}
}

func (y *guardYardstick) run(n int) {
	for i := range n {
		buf := y.pool.Get().(*[256]byte) //nolint:forcetypeassert // the pool holds nothing else
		binary.LittleEndian.PutUint64(buf[:], uint64(time.Since(y.began)))
		copy(buf[128:], buf[:128])
		for j := range y.count {
			y.count[j].Add(int64(i))
		}
		y.mu.Lock()
		y.sum.Reset()
		_, _ = y.sum.Write(buf[:128])
		buf[0] = byte(y.sum.Sum32())
		y.mu.Unlock()
		y.pool.Put(buf)
	}
}

// newGuardPath returns a path that runs in this process and is measured against the yardstick.
func newGuardPath(t *testing.T, name string, run func(n int)) guardPath {
	t.Helper()
	const span = 4 * time.Millisecond
	yard := newGuardYardstick()
	return guardPath{
		name: name, run: run, calls: guardCalls(run, span), against: guardYard, floor: yard.run, floorCalls: guardCalls(yard.run, span),
		slack: 0.25, noise: 16,
	}
}

// guardCalls returns the number of calls that take about the given time.
func guardCalls(run func(n int), span time.Duration) int {
	run(100)
	for n := 16; ; n *= 2 {
		if took := guardSpent(run, n); took*float64(n) >= float64(span)/2 || n >= 1<<20 {
			return n
		}
	}
}
