package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// The guard compares the cost of requests on important paths with an older state of this tree, the reference:
// allocations, which are exact, with those recorded in testdata/guard.json, and CPU time with a program built from the
// reference's commit. Both programs measure each path in turns, so neither the kind of processor nor a busy
// machine changes their ratio much. Wall time is not compared. For example, one more allocation per request on
// "chain of 3" fails the guard.
var (
	guardOn        = flag.Bool("guard", false, "compare the costs of requests with the recorded ones")
	guardReference = flag.String("guard-reference", "", "a test program of this package, built from the reference's commit")
	guardUpdate    = flag.String("guard-update", "", "record the allocations of requests, and this commit as the reference")
	guardServe     = flag.Bool("guard-serve", false, "measure paths as standard input asks")
)

const (
	guardFile = "testdata/guard.json"
	// guardCPU is the CPU time that a path may take, as a multiple of the reference's.
	guardCPU = 1.2
	// guardTries is the most measurements of a path. On a shared machine some kinds of work are slower for several
	// seconds at a time.
	guardTries = 10
)

// guardRecord is what the guard's file holds.
type guardRecord struct {
	// Reference is the commit whose CPU time is compared.
	Reference string        `json:"reference"`
	Paths     []guardFigure `json:"paths"`
}

// guardFigure is the cost of a request on one path.
type guardFigure struct {
	Path string `json:"path"`
	// Allocations and Bytes count the allocations of one request.
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"`
	// CPU is the CPU time of one request, as a multiple of the reference's; 0 when there is nothing to compare with.
	CPU float64 `json:"-"`
}

// TestGuard checks that no path costs more than its limit. It needs the flag -guard: make bench-guard.
func TestGuard(t *testing.T) { //nolint:paralleltest // it measures
	if !*guardOn {
		t.Skip("needs -guard: make bench-guard")
	}
	today := guardStart(t, os.Args[0], ".")
	if *guardUpdate != "" {
		guardWrite(t, today)
		return
	}
	var reference *guardProgram
	if *guardReference != "" {
		reference = guardStart(t, *guardReference, filepath.Dir(*guardReference)) // with the testdata of its commit
	}
	limits := guardLimits(guardRecorded(t), today.paths)
	found := guardMeasure(limits, func(i int) guardFigure { return guardCompare(today, reference, &today.paths[i]) })
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "path\tof a request\trecorded\tfound\tallowed")
	for i := range found {
		limits[i].print(w, &found[i])
		if !limits[i].holds(&found[i]) {
			t.Fail()
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	if reference == nil {
		t.Log("CPU time is NOT compared: there is no program of the reference's commit. Only allocations are checked. Fetch the commit: git fetch --unshallow")
	}
}

// guardLimit holds the recorded cost of a path and the most that it may cost. Both are nil when nothing is
// recorded.
type guardLimit struct{ recorded, most *guardFigure }

// guardLimits returns the limit of each path.
func guardLimits(recorded []guardFigure, paths []guardPath) []guardLimit {
	list := make([]guardLimit, len(paths))
	for i := range paths {
		p := &paths[i]
		at := slices.IndexFunc(recorded, func(f guardFigure) bool { return f.Path == p.Name })
		if at < 0 {
			continue
		}
		was := &recorded[at]
		list[i] = guardLimit{was, &guardFigure{
			Allocations: was.Allocations + p.Slack, Bytes: was.Bytes*1.02 + p.Noise, CPU: guardCPU,
		}}
	}
	return list
}

// guardMeasure returns the cost of each path: the median of the CPU times and the least allocations of its
// measurements. It measures a path again while the path is beyond its limit, at most guardTries times in all.
// measure measures the path of a limit once.
func guardMeasure(limits []guardLimit, measure func(i int) guardFigure) []guardFigure {
	found, cpu := make([]guardFigure, len(limits)), make([][]float64, len(limits))
	for try := range guardTries {
		over := 0
		for i := range found {
			if try > 0 && (limits[i].most == nil || limits[i].holds(&found[i])) {
				continue
			}
			f := measure(i)
			if try > 0 {
				f.Allocations, f.Bytes = min(f.Allocations, found[i].Allocations), min(f.Bytes, found[i].Bytes)
			}
			cpu[i] = append(cpu[i], f.CPU)
			f.CPU = guardMedian(cpu[i])
			found[i] = f
			over++
		}
		if over == 0 {
			break
		}
	}
	return found
}

// guardMedian sorts the values and returns their median, rounded as the other figures.
func guardMedian(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return guardRound((values[(n-1)/2] + values[n/2]) / 2)
}

// TestGuardMeasure checks that a path over its limit is measured again, and that the median counts.
func TestGuardMeasure(t *testing.T) {
	t.Parallel()
	limits := []guardLimit{{most: &guardFigure{Allocations: 2, CPU: 1.2}}}
	for _, c := range []struct {
		cpu, allocations []float64 // of the measurements; the last ones repeat
		want             guardFigure
		tries            int
	}{
		{[]float64{1.1}, []float64{2}, guardFigure{Allocations: 2, CPU: 1.1}, 1},
		{[]float64{1.4, 1.1}, []float64{2}, guardFigure{Allocations: 2, CPU: 1.1}, 3},
		{[]float64{1.3, 1.3, 1.3, 1.1, 1.3}, []float64{2}, guardFigure{Allocations: 2, CPU: 1.3}, 10}, // one lucky measurement
		{[]float64{1.1}, []float64{3, 2}, guardFigure{Allocations: 2, CPU: 1.1}, 2},
		{[]float64{0}, []float64{3}, guardFigure{Allocations: 3}, 10}, // no reference
	} {
		tries := 0
		got := guardMeasure(limits, func(int) guardFigure {
			at := tries
			tries++
			return guardFigure{Allocations: c.allocations[min(at, len(c.allocations)-1)], CPU: c.cpu[min(at, len(c.cpu)-1)]}
		})
		if got[0] != c.want || tries != c.tries {
			t.Errorf("CPU %v, allocations %v: %+v after %d measurements, want %+v after %d", c.cpu, c.allocations, got[0], tries, c.want, c.tries)
		}
	}
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
	if found.CPU > 0 {
		line("", "CPU, of the reference's", 1, found.CPU, l.most.CPU)
	} else {
		fmt.Fprintf(w, "\tCPU\tNOT compared\n")
	}
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
	var record guardRecord
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatalf("'%s': %v", guardFile, err)
	}
	return record.Paths
}

// guardWrite records the allocations of each path, and the commit whose CPU time is compared from now on.
func guardWrite(t *testing.T, today *guardProgram) {
	t.Helper()
	record := guardRecord{Reference: *guardUpdate}
	for i := range today.paths {
		record.Paths = append(record.Paths, guardCompare(today, nil, &today.paths[i]))
	}
	text, err := json.MarshalIndent(&record, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(guardFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a committed file is readable by all users
		t.Fatal(err)
	}
	t.Logf("recorded:\n%s", text)
}
