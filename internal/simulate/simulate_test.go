package simulate_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/simulate"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/sim"
)

const ms = time.Millisecond

// write writes a file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReadGraph checks a diamond whose steps are in another order, and JSON.
func TestReadGraph(t *testing.T) {
	t.Parallel()
	want := []sim.Node{
		{Name: "a", PerRow: 2 * ms, MaxBatch: 1},
		{Name: "b", After: []int{0}, Fixed: ms, PerRow: ms, MaxBatch: 8, Instances: 2, Device: 1},
		{Name: "c", After: []int{0}, Fixed: ms, PerRow: ms, MaxBatch: 8, Device: 1, Share: 0.5},
		{Name: "d", After: []int{1, 2}, PerRow: ms, MaxBatch: 1},
	}
	for name, text := range map[string]string{
		"graph.yaml": `
name: diamond
slo_ms: 50
steps:
  - {name: a, row_ms: 2}
  - {name: d, row_ms: 1, after: [b, c]}
  - {name: b, fixed_ms: 1, row_ms: 1, max_batch_size: 8, instances: 2, device: gpu, after: [a]}
  - {name: c, fixed_ms: 1, row_ms: 1, max_batch_size: 8, device: gpu, share: 0.5, after: [a]}
`,
		"graph.json": `{"name": "diamond", "slo_ms": 50, "steps": [{"name": "a", "row_ms": 2}, {"name": "d", "row_ms": 1, "after": ["b", "c"]},
			{"name": "b", "fixed_ms": 1, "row_ms": 1, "max_batch_size": 8, "instances": 2, "device": "gpu", "after": ["a"]},
			{"name": "c", "fixed_ms": 1, "row_ms": 1, "max_batch_size": 8, "device": "gpu", "share": 0.5, "after": ["a"]}]}`,
	} {
		g, err := simulate.ReadGraph(write(t, name, text))
		if err != nil {
			t.Fatal(err)
		}
		if g.Name != "diamond" || g.Limit != 50*ms || !slices.Equal(g.Devices, []string{"gpu"}) {
			t.Errorf("%s: %+v", name, g)
		}
		sorted := slices.SortedFunc(slices.Values(g.Nodes), func(a, b sim.Node) int { return strings.Compare(a.Name, b.Name) })
		if !reflect.DeepEqual(sorted, want) {
			t.Errorf("%s: found %+v, expected %+v", name, g.Nodes, want)
		}
	}
}

// TestGraphMistakes checks that each mistake in a graph is named.
func TestGraphMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "the graph has no step"},
		{"steps: [{row_ms: 1}]", "step 1 has no name"},
		{"steps: [{name: a, row_ms: 1}, {name: a, row_ms: 1}]", "two steps have the name 'a', expected one"},
		{"steps: [{name: a, row_ms: 1, after: [b]}]", "step 'a' is after 'b', which is no step"},
		{"steps: [{name: a, row_ms: 1, after: [b]}, {name: b, row_ms: 1, after: [a]}]", "step 'a' waits for itself"},
		{"steps: [{name: a}]", "step 'a': a batch takes 0s and 0s a row, expected times above 0"},
		{"steps: [{name: a, row_ms: 1, max_batch_size: 0}]", "step 'a': the largest batch is 0 rows, expected at least 1"},
		{"steps: [{name: a, row_ms: 1, instances: 0}]", "step 'a': instances is 0, expected at least 1"},
		{"steps: [{name: a, row_ms: 1, share: 2}]", "step 'a': share is 2, expected"},
		{"slo_ms: -1", "slo_ms is -1, expected milliseconds above 0"},
		{"stpes: []", "field stpes not found"},
	} {
		_, err := simulate.ReadGraph(write(t, "graph.yaml", tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "graph.yaml") {
			t.Errorf("%s: found %v, expected %s", tt.text, err, tt.want)
		}
	}
}

// TestTraffic checks each form of recorded arrivals.
func TestTraffic(t *testing.T) {
	t.Parallel()
	const trace = `[{"id":1,"model_name":"text","model_version":1},{"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":5}]},{"id":1,"timestamps":[{"name":"REQUEST_START","ns":1000000000}]},` +
		`{"id":2,"model_name":"tokens","model_version":1,"parent_id":1},{"id":2,"timestamps":[{"name":"REQUEST_START","ns":1200000000}]},` +
		`{"id":3,"model_name":"other","model_version":1},{"id":3,"timestamps":[{"name":"REQUEST_START","ns":1300000000}]},` +
		`{"id":4,"model_name":"text","model_version":1},{"id":4,"timestamps":[{"name":"REQUEST_START","ns":3000000000}]}`
	for _, tt := range []struct {
		name, text string
		rate       float64
		length     time.Duration
	}{
		{"seconds", "# seconds\n10\n10.5\n\n12\n", 1, 2 * time.Second},
		{"times", "2026-01-31T12:00:00.5Z\n2026-01-31T12:00:01.5Z\n2026-01-31T12:00:01Z\n", 2, time.Second},
		{"trace.json", trace, 0.5, 2 * time.Second}, // of a running server, without its end
		{"trace.json", trace + "]", 0.5, 2 * time.Second},
	} {
		tr, err := simulate.ReadTraffic(write(t, tt.name, tt.text), "text", 1)
		if err != nil {
			t.Fatal(err)
		}
		if !tr.Recorded() || math.Abs(tr.Rate()-tt.rate) > 1e-9 || tr.Length() != tt.length {
			t.Errorf("%s: %v requests per second for %v, expected %v for %v", tt.name, tr.Rate(), tr.Length(), tt.rate, tt.length)
		}
	}
	tr, err := simulate.ReadTraffic("rates:"+write(t, "rates", strings.Repeat("200 ", 50)+"\n0 0 100"), "", 1)
	if err != nil || math.Abs(tr.Rate()/192-1) > 0.1 {
		t.Errorf("%v: %v", err, tr)
	}
}

// TestTrafficMistakes checks that each mistake in arrivals is named.
func TestTrafficMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"lines", "1\ntwo\n", "line 2: found 'two', expected the seconds of an arrival"},
		{"one", "1\n", "has 1 arrivals, expected at least two at different times"},
		{"trace.json", `[{"id":1,"model_name":"other"}]`, "it has no request to 'text'"},
		{"trace.json", `[1]`, "expected a trace file of --trace-config triton,file=FILE"},
		{"rates:rates", "1 -2", "number 2 is '-2', expected requests in a second"},
	} {
		kind, file, cut := strings.Cut(tt.name, ":")
		if !cut {
			kind, file = "", kind
		} else {
			kind += ":"
		}
		_, err := simulate.ReadTraffic(kind+write(t, file, tt.text), "text", 1)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: found %v, expected %s", tt.text, err, tt.want)
		}
	}
	for name, want := range map[string]string{
		"poison": "there are no arrivals 'poison', expected poisson, twitter, gamma:CV", "gamma:no": "expected the coefficient of variation", "gamma:-1": "expected the coefficient", "none/file": "no such file",
	} {
		if _, err := simulate.ReadTraffic(name, "", 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, expected %s", name, err, want)
		}
	}
}

// batches are the statistics of batches that take fixed + rows*perRow, so many of each size.
func batches(fixed, perRow time.Duration, count uint64, sizes ...uint64) (list []infer.BatchStats) {
	for _, size := range sizes {
		ns := count * uint64(fixed+time.Duration(size)*perRow) //nolint:gosec // not negative
		list = append(list, infer.BatchStats{BatchSize: size, ComputeInput: infer.Duration{Count: count}, ComputeInfer: infer.Duration{Count: count, Ns: ns}, ComputeOutput: infer.Duration{Count: count}})
	}
	return list
}

// statistics are those of a model that has executed requests of one row.
func statistics(name string, requests uint64, list []infer.BatchStats) infer.Statistics {
	s := infer.Statistics{Name: name, InferenceCount: requests, Batches: list}
	s.Inference.Success.Count = requests
	return s
}

// model is the configuration of a model with INPUT0 and OUTPUT0.
func model(t *testing.T, name, more string) *modelconfig.ModelConfig {
	t.Helper()
	cfg, err := config.Parse("config.pbtxt", []byte(`name: "`+name+`" backend: "onnxruntime" max_batch_size: 16
		input { name: "INPUT0" data_type: TYPE_FP32 dims: 2 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 2 } `+more))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestLearn checks the graph of a chain of a model with batches, one without, and one on a GPU.
func TestLearn(t *testing.T) {
	t.Parallel()
	step := func(name, in, out string) string {
		return `step { model_name: "` + name + `" model_version: -1 input_map { key: "INPUT0" value: "` + in + `" } output_map { key: "OUTPUT0" value: "` + out + `" } }`
	}
	ensemble, err := config.Parse("config.pbtxt", []byte(`name: "chain" platform: "ensemble" max_batch_size: 16
		input { name: "X" data_type: TYPE_FP32 dims: 2 } output { name: "Y" data_type: TYPE_FP32 dims: 2 }
		ensemble_scheduling { `+step("many", "X", "a")+step("single", "a", "b")+step("gpu", "b", "Y")+` }`))
	if err != nil {
		t.Fatal(err)
	}
	s := simulate.Server{Ensemble: "chain", Configs: map[string]*modelconfig.ModelConfig{
		"chain": ensemble, "many": model(t, "many", "dynamic_batching { } instance_group { kind: KIND_CPU count: 2 }"), "single": model(t, "single", ""),
		"gpu": model(t, "gpu", "dynamic_batching { } instance_group { kind: KIND_GPU gpus: [ 1 ] }"),
	}}
	if s.Plan, err = plan.Compile(ensemble, 0, models(s.Configs)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Learn(); err == nil || !strings.Contains(err.Error(), "model 'many' has executed no batch on this server") {
		t.Errorf("without statistics: %v", err)
	}
	s.Statistics = []infer.Statistics{
		statistics("chain", 1000, nil), statistics("many", 1000, batches(2*ms, ms/2, 40, 1, 8, 16)),
		statistics("single", 1000, batches(0, 3*ms, 1000, 1)), statistics("gpu", 1000, batches(ms, ms, 100, 2)),
	}
	g, err := s.Learn()
	if err != nil {
		t.Fatal(err)
	}
	want := []sim.Node{
		{Name: "many", Fixed: 2 * ms, PerRow: ms / 2, MaxBatch: 16, Instances: 2},
		{Name: "single", After: []int{0}, PerRow: 3 * ms, MaxBatch: 1},
		{Name: "gpu", After: []int{1}, PerRow: 3 * ms / 2, MaxBatch: 16, Instances: 1, Device: 1},
	}
	if !reflect.DeepEqual(g.Nodes, want) || !slices.Equal(g.Devices, []string{"GPU 1"}) {
		t.Errorf("found %+v at %v, expected %+v", g.Nodes, g.Devices, want)
	}
	if len(g.Notes) != 1 || !strings.Contains(g.Notes[0], "model 'gpu' has executed batches of 2 rows only") {
		t.Errorf("notes: %q", g.Notes)
	}
}

// models are the models of a plan.
type models map[string]*modelconfig.ModelConfig

// Model implements plan.Lookup.
func (m models) Model(name string, _ int64) (plan.Model, error) {
	return plan.Model{Signature: config.SignatureOf(m[name])}, nil
}

// TestReport checks that equal settings have equal reports, and what a plot has.
func TestReport(t *testing.T) {
	t.Parallel()
	g, err := simulate.ReadGraph(write(t, "graph.yaml", "name: one\nsteps: [{name: a, fixed_ms: 2, row_ms: 1, max_batch_size: 8}]"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := simulate.ReadTraffic("gamma:2", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 2)
	for i := range texts {
		r, err := simulate.Run(t.Context(), simulate.Settings{Graph: g, Traffic: tr, Rates: []float64{400, 1000}, Noise: 0.2, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		var table, picture strings.Builder
		if err := r.Write(&table); err != nil {
			t.Fatal(err)
		}
		if err := r.SVG(&picture); err != nil {
			t.Fatal(err)
		}
		texts[i] = table.String() + picture.String()
		for _, l := range r.Data().Loads {
			for _, p := range l.Policies {
				if sum := p.InTime + p.Late + p.Refused + p.Dropped; sum != l.Offered || l.Offered == 0 {
					t.Errorf("%s at %v: %d requests of %d", p.Policy, l.Load, sum, l.Offered)
				}
			}
		}
		for _, p := range sim.Policies {
			if !strings.Contains(table.String(), p.Name) || !strings.Contains(picture.String(), ">"+p.Name+"<") {
				t.Errorf("the report has no policy %s: %s", p.Name, texts[i])
			}
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("two reports differ: %s\n%s", texts[0], texts[1])
	}
}
