package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/load"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	var c counts
	if err := c.Set("1,8,128"); err != nil || c.String() != "1,8,128" || len(c) != 3 {
		t.Errorf("%v, %v", c, err)
	}
	for _, bad := range []string{"", "0", "1,", "x", "-1"} {
		if err := c.Set(bad); err == nil {
			t.Errorf("'%s' is no error", bad)
		}
	}
}

func TestMatrixRefuses(t *testing.T) {
	t.Parallel()
	base := matrix{protocols: load.Protocols(), loops: list{closed, poisson}, instances: 1, threads: 1, rounds: 1, starts: 1, time: 1}
	if err := base.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*matrix){
		"protocol":  func(m *matrix) { m.protocols = list{"soap"} },
		"loop":      func(m *matrix) { m.loops = list{"half"} },
		"instances": func(m *matrix) { m.instances = 0 },
		"time":      func(m *matrix) { m.time = 0 },
	} {
		m := base
		change(&m)
		if err := m.check(); err == nil {
			t.Errorf("a bad %s is no error", name)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	out := func(name string, floats []float64, texts ...string) []load.Output {
		return []load.Output{{Name: name, Floats: floats, Strings: texts}}
	}
	for _, tt := range []struct {
		name      string
		want, got []load.Output
		err       string
	}{
		{"equal", out("a", []float64{1, 2}), out("a", []float64{1, 2}), ""},
		{"near", out("a", []float64{1000, 0}), out("a", []float64{1000.9, 0.0009}), ""},
		{"far", out("a", []float64{1000, 0}), out("a", []float64{1000, 0.002}), "has 0.002 at 1, expected 0"},
		{"no number", out("a", []float64{1}), out("a", []float64{math.NaN()}), "has NaN"},
		{"texts", out("a", nil, "cat", "dog"), out("a", nil, "cat", "dog"), ""},
		{"another order", out("a", nil, "cat", "dog"), out("a", nil, "dog", "cat"), "expected"},
		{"shorter", out("a", []float64{1, 2}), out("a", []float64{1}), "has 1 elements, expected 2"},
		{"another name", out("a", []float64{1}), out("b", []float64{1}), "none of its 1 outputs is one of ours"},
		{"more", out("a", []float64{1}), append(out("b", []float64{7}), out("a", []float64{1})...), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := same(tt.want, tt.got)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want '%s'", err, tt.err)
			}
		})
	}
}

// TestCopy checks that a copied repository has the requested instances and threads in the models that accept them.
func TestCopy(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const onnx = `platform: "onnxruntime_onnx"
instance_group [
  {
    count: 2
    kind: KIND_CPU
  }
]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
parameters { key: "other" value { string_value: "1" } }
`
	const native, ensemble = "backend: \"native\"\n", "name: \"e\"\nplatform: \"ensemble\"\n"
	write("m/config.pbtxt", onnx)
	write("m/1/model.onnx", "weights")
	write("m/1/__pycache__/x.pyc", "")
	write("m/1/.gitkeep", "")
	write("n/config.pbtxt", native)
	write("e/config.pbtxt", ensemble)
	s := &scenario{dir: dir, models: []string{"m", "n", "e"}}
	if err := s.copy(to, 3, 4); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"m", "n", "e"} {
		text, err := os.ReadFile(filepath.Join(to, name, "config.pbtxt"))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(text)
	}
	want := map[string]string{"n": native, "e": ensemble, "m": `platform: "onnxruntime_onnx"
parameters { key: "other" value { string_value: "1" } }
instance_group [ { count: 3 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "4" } }
`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configurations (-want +got):\n%s", diff)
	}
	files, err := os.ReadDir(filepath.Join(to, "m", "1"))
	if err != nil || len(files) != 1 || files[0].Name() != "model.onnx" {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestSum(t *testing.T) {
	t.Parallel()
	f := figures{Rounds: []round{{Throughput: 100, P99: 3, CPU: 1, Errors: 1}, {Throughput: 120, P99: 1, CPU: 1}, {Throughput: 90, P99: 2, CPU: 1}}}
	f.sum()
	if f.Throughput != 100 || f.P99 != 2 || f.CPU != 1 || f.Spread != 0.3 || f.SpreadCPU != 0 || f.Errors != 1 {
		t.Errorf("unexpected %+v", f)
	}
	var none figures
	none.sum()
}

// TestReport checks that the report has a row for each server, and the ratios of our figures to the others'.
func TestReport(t *testing.T) {
	t.Parallel()
	r := report{
		Machine: "a machine", Versions: []string{"tutti 1", "peer 2"},
		Cells: []cell{{Scenario: "identity3", Protocol: "grpc", Loop: closed, Clients: 8, Servers: []figures{
			{Server: "tutti", Throughput: 300, P50: 1, P99: 2, P999: 3, CPU: 0.1, Resident: 50},
			{Server: "peer", Throughput: 100, P50: 2, P99: 8, P999: 9, Errors: 2},
			{Server: "other", Missing: "cannot"},
		}}},
		Starts: []boot{{Scenario: "identity3", Server: "tutti", Seconds: 1, Resident: 10, Proportional: 10, Idle: 0.01}, {Scenario: "identity3", Server: "peer", Seconds: 4, Resident: 40, Proportional: 20}},
		Taxes:  []tax{{Scenario: "identity3", Server: "tutti", Protocol: "binary", Clients: 8}},
	}
	all := []step{{model: "identity3"}, {model: "fast"}, {model: "slow"}}
	r.Taxes[0].fill(all, []figures{
		{Rounds: []round{{Throughput: 95, CPU: 0.5}}}, {Rounds: []round{{Throughput: 200, CPU: 0.2}}}, {Rounds: []round{{Throughput: 100, CPU: 0.3}}},
	})
	var b bytes.Buffer
	r.print(&b)
	var lines []string
	for line := range strings.Lines(b.String()) {
		if words := strings.Join(strings.Fields(line), " "); words != "" {
			lines = append(lines, words)
		}
	}
	want := []string{
		"a machine", "tutti 1; peer 2",
		"scenario protocol loop clients server req/s ± p50 ms p99 ms p99.9 ms CPU s/1000 ± RSS MiB req/s ratio p50 ratio p99 ratio CPU ratio",
		"identity3 grpc closed 8 tutti 300 0% 1.00 2.00 3.00 0.1000 0% 50",
		"identity3 grpc closed 8 peer 100 0% 2.00 8.00 9.00 - 0% 0 3.00 0.50 0.25 - 2 errors",
		"identity3 grpc closed 8 other - - - - - - - - - - - -",
		"scenario server ready s RSS MiB PSS MiB idle CPU ready ratio RSS ratio PSS ratio",
		"identity3 tutti 1.00 10 10 1.0%", "identity3 peer 4.00 40 20 0.0% 0.25 0.25 0.50",
		"scenario server protocol clients ensemble req/s slowest step its req/s tax CPU s/1000 of the steps CPU ratio",
		"identity3 tutti binary 8 95 slow 100 0.95 0.5000 0.5000 1.00",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestScenarios checks that the committed repositories give scenarios.
func TestScenarios(t *testing.T) { //nolint:paralleltest // it changes the working directory
	t.Chdir("..")
	for name, models := range map[string]int{"identity3": 4, "parallel": 5, "python3": 4, "image": 4, "text": 4} {
		s, err := newScenario(name)
		if err != nil || len(s.models) != models || len(s.requests) == 0 {
			t.Errorf("%s: %d models, want %d, %d requests, %v", name, len(s.models), models, len(s.requests), err)
		}
	}
	if _, err := newScenario("nothing"); err == nil {
		t.Error("a scenario without models is no error")
	}
}
