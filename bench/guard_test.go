package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// The guard compares the cost of requests on important paths with the figures in testdata/guard.json: allocations,
// which are exact, and CPU time as a ratio. The ratio is to a program of the same process that is measured
// alternately with the path, so neither a slow machine nor a busy one changes it much. Wall time is not compared.
// For example, one more allocation per request on "chain of 3" fails the guard.
var (
	guardOn     = flag.Bool("guard", false, "compare the costs of requests with the recorded ones")
	guardUpdate = flag.Bool("guard-update", false, "record the costs of requests")
)

const (
	guardFile = "testdata/guard.json"
	// guardCPU is the CPU time that a path may take, as a multiple of the recorded one.
	guardCPU = 1.25
	// guardTries is the number of measurements of a path before the path counts as too slow. On a shared machine
	// some kinds of work are slower for several seconds at a time.
	guardTries = 40
	// guardRecords is the number of measurements of a path when its figures are recorded.
	guardRecords = 3
)

// guardFigure is the cost of a request on one path.
type guardFigure struct {
	Path string `json:"path"`
	// Allocations and Bytes count the allocations of one request.
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
	// CPU is the CPU time of one request, as a multiple of one call of Against.
	CPU float64 `json:"cpu"`
	// Against names the program that the path is compared with.
	Against string `json:"against"`
}

// guardPath is a path of requests through the program.
type guardPath struct {
	name string
	// calls and floorCalls are chosen so that both programs run for about the same time, some milliseconds.
	calls      int
	run        func(n int)
	against    string
	floorCalls int
	floor      func(n int)
	// slack is the number of allocations, and noise the number of bytes, that vary by chance.
	slack, noise float64
}

// TestGuard checks that no path costs more than its recorded limit. It needs the flag -guard: make bench-guard.
func TestGuard(t *testing.T) { //nolint:paralleltest // it measures
	if !*guardOn && !*guardUpdate {
		t.Skip("needs -guard: make bench-guard")
	}
	paths := append(guardInProcess(t), guardOverSockets(t)...)
	if *guardUpdate {
		guardRecord(t, paths)
		return
	}
	limits := guardLimits(guardRecorded(t), paths)
	found := guardMeasure(paths, limits)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "path\tof a request\trecorded\tfound\tallowed")
	for i := range paths {
		limits[i].print(w, &found[i])
		if !limits[i].holds(&found[i]) {
			t.Fail()
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
}

// guardLimit holds the recorded cost of a path and the most that it may cost. Both are nil when nothing is
// recorded.
type guardLimit struct{ recorded, most *guardFigure }

// guardLimits returns the limit of each path.
func guardLimits(recorded []guardFigure, paths []guardPath) []guardLimit {
	list := make([]guardLimit, len(paths))
	for i := range paths {
		p := &paths[i]
		at := slices.IndexFunc(recorded, func(f guardFigure) bool { return f.Path == p.name })
		if at < 0 {
			continue
		}
		was := &recorded[at]
		list[i] = guardLimit{was, &guardFigure{
			Allocations: was.Allocations + p.slack, Bytes: was.Bytes*1.02 + p.noise, CPU: was.CPU * guardCPU,
		}}
	}
	return list
}

// guardMeasure returns the cost of each path. It measures a path again while the path is beyond its limit, at most
// guardTries times, and returns the last measurement.
func guardMeasure(paths []guardPath, limits []guardLimit) []guardFigure {
	found := make([]guardFigure, len(paths))
	for try := range guardTries {
		over := 0
		for i := range paths {
			if try == 0 || limits[i].most != nil && !limits[i].holds(&found[i]) {
				found[i] = paths[i].measure()
				over++
			}
		}
		if over == 0 {
			break
		}
	}
	return found
}

// print prints a path's cost beside its limit.
func (l *guardLimit) print(w io.Writer, found *guardFigure) {
	if l.recorded == nil {
		fmt.Fprintf(w, "%s\t\tnothing\t\trecord it: make bench-guard UPDATE=1\n", found.Path)
		return
	}
	line := func(name, what string, recorded, found, allowed float64) {
		verdict := ""
		if found > allowed {
			verdict = "\tOVER"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f%s\n", name, what, recorded, found, allowed, verdict)
	}
	line(found.Path, "allocations", l.recorded.Allocations, found.Allocations, l.most.Allocations)
	line("", "bytes", l.recorded.Bytes, found.Bytes, l.most.Bytes)
	line("", "CPU, "+found.Against, l.recorded.CPU, found.CPU, l.most.CPU)
}

// holds reports whether a path costs no more than it may.
func (l *guardLimit) holds(found *guardFigure) bool {
	return l.most != nil && found.Allocations <= l.most.Allocations && found.Bytes <= l.most.Bytes && found.CPU <= l.most.CPU
}

func guardRecorded(t *testing.T) []guardFigure {
	t.Helper()
	text, err := os.ReadFile(guardFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []guardFigure
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("'%s': %v", guardFile, err)
	}
	return list
}

// guardRecord writes the cost of each path: the median of several measurements.
func guardRecord(t *testing.T, paths []guardPath) {
	t.Helper()
	var list []guardFigure
	for i := range paths {
		several := make([]guardFigure, guardRecords)
		for j := range several {
			several[j] = paths[i].measure()
		}
		slices.SortFunc(several, func(a, b guardFigure) int { return int(1e6 * (a.CPU - b.CPU)) })
		list = append(list, several[guardRecords/2])
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(guardFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a committed file is readable by all users
		t.Fatal(err)
	}
	t.Logf("recorded:\n%s", text)
}
