package main

import (
	"encoding/json"
	"flag"
	"fmt"
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
	// guardTries is how often a path is measured anew before it counts as too slow.
	guardTries = 3
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
	recorded := guardRecorded(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "path\tof a request\trecorded\tfound\tallowed")
	for i := range paths {
		if !guardCompare(w, &paths[i], recorded) {
			t.Fail()
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
}

// guardCompare prints one path and reports whether it costs no more than recorded.
func guardCompare(w *tabwriter.Writer, p *guardPath, recorded []guardFigure) bool {
	at := slices.IndexFunc(recorded, func(f guardFigure) bool { return f.Path == p.name })
	if at < 0 {
		fmt.Fprintf(w, "%s\t\tnothing\t\trecord it: make bench-guard UPDATE=1\n", p.name)
		return false
	}
	was := &recorded[at]
	most := guardFigure{Allocations: was.Allocations + p.slack, Bytes: was.Bytes*1.02 + p.noise, CPU: was.CPU * guardCPU}
	var found guardFigure
	for range guardTries {
		if found = p.measure(); found.within(&most) {
			break
		}
	}
	line := func(name, what string, recorded, found, allowed float64) {
		verdict := ""
		if found > allowed {
			verdict = "\tOVER"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f%s\n", name, what, recorded, found, allowed, verdict)
	}
	line(p.name, "allocations", was.Allocations, found.Allocations, most.Allocations)
	line("", "bytes", was.Bytes, found.Bytes, most.Bytes)
	line("", "CPU, "+p.against, was.CPU, found.CPU, most.CPU)
	return found.within(&most)
}

func (f *guardFigure) within(most *guardFigure) bool {
	return f.Allocations <= most.Allocations && f.Bytes <= most.Bytes && f.CPU <= most.CPU
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
		several := make([]guardFigure, guardTries)
		for j := range several {
			several[j] = paths[i].measure()
		}
		slices.SortFunc(several, func(a, b guardFigure) int { return int(1e6 * (a.CPU - b.CPU)) })
		list = append(list, several[guardTries/2])
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
