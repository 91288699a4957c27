package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardRounds is the number of rounds. Each round measures a path in both programs.
	guardRounds = 31
	// guardSweep is the number of rounds between two garbage collections.
	guardSweep = 8
	// guardSpan is the CPU time for which a path runs in a round, about.
	guardSpan = 4 * time.Millisecond
)

// guardPath is a path of requests through the program.
type guardPath struct {
	Name string `json:"name"`
	// Calls is the number of requests in a round.
	Calls int `json:"calls"`
	// Slack is the number of allocations, and Noise the number of bytes, that vary by chance.
	Slack float64 `json:"slack"`
	Noise float64 `json:"noise"`

	run func(n int)
}

// newGuardPath returns a path whose rounds last for guardSpan.
func newGuardPath(name string, run func(n int)) guardPath {
	return guardPath{Name: name, Calls: guardCalls(run, guardSpan), Slack: 0.25, Noise: 16, run: run}
}

// guardCalls returns the number of calls that take about the given time.
func guardCalls(run func(n int), span time.Duration) int {
	run(100)
	for n := 16; ; n *= 2 {
		before := guardClock()
		run(n)
		if guardClock()-before >= int64(span)/2 || n >= 1<<20 {
			return n
		}
	}
}

// guardQuestion asks a program to run a path once.
type guardQuestion struct {
	Path  string `json:"path"`
	Calls int    `json:"calls"`
	// Sweep is set to collect garbage and run the path once before.
	Sweep bool `json:"sweep"`
}

// guardCost is what all calls of a question took together: CPU time in ns, allocations and their bytes.
type guardCost struct {
	CPU    int64  `json:"cpu"`
	Allocs uint64 `json:"allocs"`
	Bytes  uint64 `json:"bytes"`
}

// guardProgram is a process that measures paths: this test program, or one that was built from the reference.
type guardProgram struct {
	paths []guardPath
	send  *json.Encoder
	recv  *json.Decoder
}

// guardStart starts a test program in a folder, whose testdata it uses. It answers until the test ends. It has one processor, so that goroutines wake
// each other in the same order in every round. A program writes a list of its paths, then a guardCost for each
// guardQuestion it reads.
func guardStart(t *testing.T, program, dir string) *guardProgram {
	t.Helper()
	cmd := exec.Command(program, "-test.run", "^TestGuardServe$", "-guard-serve") //nolint:gosec,noctx // ends with its input
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out) // the test's own last words
		if err := cmd.Wait(); err != nil {
			t.Errorf("'%s': %v", program, err)
		}
	})
	p := &guardProgram{send: json.NewEncoder(in), recv: json.NewDecoder(out)}
	if err := p.recv.Decode(&p.paths); err != nil {
		t.Fatalf("the paths of '%s': %v", program, err)
	}
	return p
}

// ask runs a path once.
func (p *guardProgram) ask(q guardQuestion) (c guardCost) {
	fail(p.send.Encode(q))
	fail(p.recv.Decode(&c))
	return c
}

// has reports whether the program knows the path.
func (p *guardProgram) has(path *guardPath) bool {
	return slices.ContainsFunc(p.paths, func(own guardPath) bool { return own.Name == path.Name })
}

// guardCompare returns the cost of a request on the path today, and the ratio of its CPU time to the reference's if there
// is one that knows the path.
func guardCompare(today, reference *guardProgram, path *guardPath) guardFigure {
	if reference != nil && !reference.has(path) {
		reference = nil
	}
	f := guardFigure{Path: path.Name, Allocations: math.Inf(1), Bytes: math.Inf(1)}
	ratios := make([]float64, guardRounds)
	for round := range guardRounds {
		q := guardQuestion{Path: path.Name, Calls: path.Calls, Sweep: round%guardSweep == 0}
		var theirs guardCost
		if reference != nil && round%2 == 0 { // neither is always the first
			theirs = reference.ask(q)
		}
		c := today.ask(q)
		if reference != nil && round%2 == 1 {
			theirs = reference.ask(q)
		}
		ratios[round] = float64(c.CPU) / float64(theirs.CPU)
		f.Allocations = min(f.Allocations, guardRound(float64(c.Allocs)/float64(path.Calls)))
		f.Bytes = min(f.Bytes, guardRound(float64(c.Bytes)/float64(path.Calls)))
	}
	if reference != nil {
		f.CPU = guardMedian(ratios)
	}
	return f
}

// guardRound rounds to three decimals.
func guardRound(v float64) float64 { return math.Round(v*1000) / 1000 }

// TestGuardServe is the program that TestGuard starts twice. The garbage collector is off while it counts, because a
// collection empties pools, which would then allocate again.
func TestGuardServe(t *testing.T) { //nolint:paralleltest // it measures
	if !*guardServe {
		t.Skip("TestGuard starts it")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	paths := append(guardInProcess(t), guardOverSockets(t)...)
	send, recv := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := send.Encode(paths); err != nil {
		t.Fatal(err)
	}
	for {
		var q guardQuestion
		if err := recv.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(paths, func(p guardPath) bool { return p.Name == q.Path })
		if at < 0 {
			t.Fatalf("no path '%s'", q.Path)
		}
		if err := send.Encode(paths[at].answer(q)); err != nil {
			t.Fatal(err)
		}
	}
}

// answer runs the path for a question, and returns what that cost.
func (p *guardPath) answer(q guardQuestion) guardCost {
	if q.Sweep {
		runtime.GC()
		p.run(q.Calls)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := guardClock()
	p.run(q.Calls)
	spent := guardClock() - began
	runtime.ReadMemStats(&after)
	return guardCost{CPU: spent, Allocs: after.Mallocs - before.Mallocs, Bytes: after.TotalAlloc - before.TotalAlloc}
}

// guardClock returns the CPU time of the process in ns.
func guardClock() int64 {
	var t unix.Timespec
	fail(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return t.Nano()
}
