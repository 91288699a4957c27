package tune_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/repeat"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/tune"
	"github.com/tutti-server/tutti/steps"
)

const (
	port     = `[ { name: "%" data_type: TYPE_FP32 dims: [ 2 ] } ]`
	slow     = "# waits a millisecond\nbackend: \"identity\"\nmax_batch_size: 8\ninput " + port + "\noutput " + port + "\ndynamic_batching { }\nparameters { key: \"execute_delay_ms\" value { string_value: \"1\" } }\n"
	chain    = "platform: \"ensemble\"\nmax_batch_size: 8\ninput " + port + "\noutput " + port + "\n"
	oneStep  = "ensemble_scheduling { step [ { model_name: \"slow\" model_version: -1 input_map { key: \"INPUT0\" value: \"INPUT0\" } output_map { key: \"OUTPUT0\" value: \"OUTPUT0\" } } ] }\n"
	sequence = "backend: \"identity\"\nmax_batch_size: 8\ninput " + port + "\noutput " + port + "\nsequence_batching { }\n"
	request  = `{"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}`
)

// repository writes models and returns their folder. The text of a file has the names of its ports.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "1"), 0o750); err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(strings.Replace(text, "%", "INPUT0", 1), "%", "OUTPUT0", 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func settings(root, ensemble string) tune.Settings {
	return tune.Settings{
		Root: root, Ensemble: ensemble, Objective: time.Second, Brief: true,
		Components: tutti.Components{Backends: func(*steps.Registry) []backends.Factory {
			return []backends.Factory{identity.NewFactory(), repeat.NewFactory()}
		}},
	}
}

// TestRun tunes an ensemble whose model waits in each execution: the advice has predictions and measurements, what it
// changes is valid, and nothing is written before Write. It is not parallel: it measures the processor time of the process. Where
// other processes use the cores so that the objective cannot be met, it is skipped.
func TestRun(t *testing.T) {
	root := repository(t, map[string]string{"slow/config.pbtxt": slow, "chain/config.pbtxt": chain + oneStep, "requests.json": request})
	s := settings(root, "chain")
	s.Data = []string{filepath.Join(root, "requests.json")}
	s.Rate = 25 // a busy machine sustains it
	phases := map[string]bool{}
	s.Progress = func(phase string, _ float64) { phases[phase] = true }
	r, err := tune.Run(t.Context(), s)
	if busy, ok := errors.AsType[*tune.BusyError](err); ok {
		t.Skipf("it needs cores for itself: %v", busy)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &r.Network.Models[0]
	if cost := m.Costs[tune.Execution{}]; len(r.Network.Models) != 1 || cost.Wall(&tune.Batch{Rows: 1, Elements: 2}) < float64(time.Millisecond) || cost.Width > 0.9 {
		t.Errorf("a model that waits a millisecond has the cost %+v", cost)
	}
	for name, c := range map[string]*tune.Candidate{"current": &r.Current, "advice": &r.Advice} {
		if c.Predicted.P99 < time.Millisecond || c.Measured.P99 < time.Millisecond || c.Measured.P50 > c.Measured.P99 || c.Measured.Throughput <= 0 {
			t.Errorf("%s: predicted %+v, measured %+v", name, c.Predicted, c.Measured)
		}
	}
	if r.Changed != (len(r.Changes) > 0) || len(r.Points) == 0 || len(phases) != 5 {
		t.Errorf("changed %v: %v; %d points, phases %v", r.Changed, r.Changes, len(r.Points), phases)
	}
	if text, err := os.ReadFile(filepath.Join(root, "slow/config.pbtxt")); err != nil || !strings.HasPrefix(string(text), "# waits a millisecond") || strings.Contains(string(text), "name: \"slow") {
		t.Errorf("error %v, the configuration is now:\n%s", err, text)
	}
	var report, picture strings.Builder
	if err := errors.Join(r.Write(&report), r.SVG(&picture)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Ensemble chain, p99 of at most 1s", "\nslow ", "\nAt 25 requests/s:\n", "\ncurrent: slow: 1 instance, batches up to 8\n"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, &report)
		}
	}
	if !strings.HasPrefix(picture.String(), "<svg") || !strings.Contains(picture.String(), "current, measured: ") || strings.Contains(picture.String(), "ZgotmplZ") {
		t.Errorf("the picture is:\n%s", &picture)
	}
}

// TestRunRefuses checks the errors of ensembles that cannot be tuned.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	decoupled := "backend: \"repeat\"\nmodel_transaction_policy { decoupled: true }\n"
	root := repository(t, map[string]string{
		"slow/config.pbtxt": slow, "chain/config.pbtxt": chain + oneStep, "steps/config.pbtxt": sequence, "many/config.pbtxt": decoupled,
		"broken/config.pbtxt": "backend: \"nothing\"\n", "empty.json": "{}", "wrong.json": strings.ReplaceAll(request, "INPUT0", "X"),
		"large.json": strings.NewReplacer("[1, 2], \"data\": [1, 2]", "[1, 3], \"data\": [1, 2, 3]").Replace(request),
	})
	for _, c := range []struct{ ensemble, data, want string }{
		{"chain", "", "there are no sample requests to 'chain': neither golden requests in '" + root},
		{"ghost", "", "has no model 'ghost'"},
		{"../chain", "", "has no model '../chain'"},
		{"", "", "has no model ''"},
		{"broken", "", "model 'broken' cannot be loaded"},
		{"steps", "", "model 'steps' has sequence_batching: tune supports models without sequences"},
		{"many", "", "model 'many' is decoupled: tune supports models with one response to a request"},
		{"chain", "missing.json", "missing.json"},
		{"chain", "empty.json", "empty.json"},
		{"chain", "wrong.json", "X"},
		{"chain", "large.json", "3"},
	} {
		s := settings(root, c.ensemble)
		if c.data != "" {
			s.Data = []string{filepath.Join(root, c.data)}
		}
		if _, err := tune.Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with data %q: error '%v', want '%s'", c.ensemble, c.data, err, c.want)
		}
	}
}

// TestChangeVersion checks that another version takes the place of whatever version_policy there is.
func TestChangeVersion(t *testing.T) {
	t.Parallel()
	const policy = "version_policy: { specific { versions: [ 2 ] } }\n"
	root := repository(t, map[string]string{
		"m/config.pbtxt":     "max_batch_size: 8\n",
		"other/config.pbtxt": "version_policy: { all { } } # every one\nmax_batch_size: 8\n",
	})
	for model, want := range map[string]string{"m": "max_batch_size: 8\n" + policy, "other": strings.TrimSuffix(policy, "\n") + " # every one\nmax_batch_size: 8\n"} {
		n := oneModel(tune.NewCost(1, 1e6), 8)
		set := n.Models[0].Current
		set.Version = tune.Version{Number: 2, Precision: precision.INT8}
		list, err := tune.Changes(n, func(string) string { return filepath.Join(root, model) }, []tune.Setting{set})
		if err != nil || len(list) != 1 || string(list[0].To) != want {
			t.Errorf("%s: error %v, changes %s", model, err, list)
		}
	}
}

// TestChanges checks that a change keeps the text around it, also through a link, and that a model without a
// configuration gets one.
func TestChanges(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"m/config.pbtxt": "# mine\nmax_batch_size: 8\ninstance_group [ { count: 2 kind: KIND_CPU } ] # two\n", "bare/x": ""})
	n := oneModel(tune.NewCost(1, 1e6), 8)
	n.Models[0].Config.Backend = "onnxruntime"
	n.Models[0].Current = tune.Setting{MaxBatch: 8, Instances: 2, Threads: 1}
	to := []tune.Setting{{MaxBatch: 8, Batching: true, Preferred: []int32{4}, Delay: 1500 * time.Microsecond, Instances: 1, Threads: 2}}
	for model, want := range map[string]string{
		"m": "# mine\nmax_batch_size: 8\ninstance_group [ { count: 1 kind: KIND_CPU } ] # two\ndynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 1500 }\n" +
			"parameters { key: \"intra_op_thread_count\" value { string_value: \"2\" } }\n",
		"bare": "instance_group { count: 1 }\ndynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 1500 }\n" +
			"parameters { key: \"intra_op_thread_count\" value { string_value: \"2\" } }\n",
	} {
		list, err := tune.Changes(n, func(string) string { return filepath.Join(root, model) }, to)
		if err != nil || len(list) != 1 || string(list[0].To) != want {
			t.Fatalf("error %v, changes %s", err, list)
		}
		if diff := list[0].Diff(); !strings.Contains(diff, "\n+instance_group") {
			t.Errorf("the diff is:\n%s", diff)
		}
		if err := list[0].Write(); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(filepath.Join(root, model))
		if err != nil || cfg.GetInstanceGroup()[0].GetCount() != 1 || cfg.GetDynamicBatching().GetMaxQueueDelayMicroseconds() != 1500 {
			t.Errorf("%s: %v, error %v", model, cfg, err)
		}
	}
}
