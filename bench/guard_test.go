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

// The guard compares what requests cost on the paths that matter with what is recorded
// in testdata/guard.json: allocations, which are exact, and CPU time as a ratio to a
// program of the same process that is measured in turns with the path, so that neither
// a slow machine nor a busy one changes it much. Wall time is not looked at.
var (
	guardOn     = flag.Bool("guard", false, "compare the costs of requests with the recorded ones")
	guardUpdate = flag.Bool("guard-update", false, "record the costs of requests")
)

const (
	guardFile = "testdata/guard.json"
	// guardCPU is how much more than recorded a path may take, as a factor.
	guardCPU = 1.25
	// guardTries is how often the paths that seem to cost too much are measured, one after the other, before they count as
	// too slow: a machine that others share is slower for some seconds at a time, and for some kinds of work more than others.
	guardTries = 40
	// guardRecords is how often a path is measured to be recorded.
	guardRecords = 3
)

// guardFigure is what a request costs on one path.
type guardFigure struct {
	Path string `json:"path"`
	// Allocations and Bytes are those of one request.
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
	// CPU is that of a request in units of what it is compared with.
	CPU float64 `json:"cpu"`
	// Against is what it is compared with.
	Against string `json:"against"`
}

// guardPath is a path of requests through the program.
type guardPath struct {
	name string
	// calls and floorCalls take about the same time, some milliseconds.
	calls      int
	run        func(n int)
	against    string
	floorCalls int
	floor      func(n int)
	// slack is how many allocations, and noise how many bytes, come and go by chance.
	slack, noise float64
}

// TestGuard fails when a path costs more than is recorded. It takes -guard to run:
// make bench-guard.
func TestGuard(t *testing.T) { //nolint:paralleltest // it measures
	if !*guardOn && !*guardUpdate {
		t.Skip("not asked for: make bench-guard")
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

// guardLimit is what a path may cost; both are nil when nothing is recorded.
type guardLimit struct{ was, most *guardFigure }

// guardLimits returns those of the paths.
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

// guardMeasure returns what the paths cost: of those beyond their limit, what the last of several measurements found.
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

// print prints what a path costs beside what it may cost.
func (l *guardLimit) print(w io.Writer, found *guardFigure) {
	if l.was == nil {
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
	line(found.Path, "allocations", l.was.Allocations, found.Allocations, l.most.Allocations)
	line("", "bytes", l.was.Bytes, found.Bytes, l.most.Bytes)
	line("", "CPU, "+found.Against, l.was.CPU, found.CPU, l.most.CPU)
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

// guardRecord writes what the paths cost: of each the middle one of several measurements.
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
	if err := os.WriteFile(guardFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // it is read by everybody
		t.Fatal(err)
	}
	t.Logf("recorded:\n%s", text)
}
