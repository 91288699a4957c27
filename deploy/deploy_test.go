package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// metric matches a name that looks like one of the server's metrics.
var metric = regexp.MustCompile(`\b(?:nv|ensemble)_[a-z0-9_]+`)

// exported reports whether the server exports a family with a series of that name.
func exported(name string) bool {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && telemetry.When(base) != "" {
			return true
		}
	}
	return false
}

// TestNames checks that the server exports every metric in the dashboards and rules.
func TestNames(t *testing.T) {
	t.Parallel()
	files := []string{"prometheus/alerts.yml", "prometheus/alerts_test.yml"}
	boards, err := filepath.Glob("grafana/dashboards/*.json")
	if err != nil || len(boards) != len(dashboards()) {
		t.Fatalf("%d dashboards, want %d: %v", len(boards), len(dashboards()), err)
	}
	for _, file := range append(files, boards...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metric.FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			if !exported(name) {
				t.Errorf("%s names %s, which the server does not export", file, name)
			}
		}
	}
	if exported("nv_no_such_thing") {
		t.Error("any name is taken for an exported one")
	}
}

// promtool returns a command of promtool, and skips the test if it is not installed.
func promtool(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), preparedtest.Script(t, "promtool", "prepare-promtool"), args...)
}

// TestPromtoolRules checks the rules' unit tests and the configuration with promtool.
func TestPromtoolRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := promtool(t, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestPromtoolQueries checks the syntax of every query of the dashboards with promtool.
func TestPromtoolQueries(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	filled := strings.NewReplacer("$__rate_interval", "1m", "$model", "m", "$gpu_uuid", "g")
	for _, d := range dashboards() {
		for i, p := range d.panels {
			for k, q := range p.queries {
				rules = append(rules, rule{fmt.Sprintf("%s:%d:%d", d.file, i, k), filled.Replace(q[1])})
			}
		}
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// lintOnly is the exit status of promtool check metrics for valid text with names against its conventions.
const lintOnly = 3

// TestPromtoolMetrics checks the metrics with promtool. Only Triton's names may break its naming conventions.
func TestPromtoolMetrics(t *testing.T) {
	t.Parallel()
	cmd := promtool(t, "check", "metrics")
	cmd.Stdin = strings.NewReader(page(t))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != lintOnly) {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "nv_") {
			t.Error(line)
		}
	}
}

// page returns a scrape with all of our metric families.
func page(t *testing.T) string {
	t.Helper()
	x := telemetry.NewMetricsOf(telemetry.ExportOptions{Summaries: true, Histograms: true, CPU: true, GPU: true})
	x.GPUs(func() []telemetry.GPU { return []telemetry.GPU{{UUID: "GPU-1"}} })
	x.Cache(func() telemetry.CacheCounts { return telemetry.CacheCounts{Sized: true} })
	m := &telemetry.Model{Name: "m \"\\\n", Version: 1}
	m.Configure(&telemetry.Setup{Decoupled: true, Cached: true})
	x.Add(m)
	m.Queued(3)
	m.Padded(3, 1)
	m.Slack(1)
	m.Due(telemetry.Late)
	m.Predicted(1, 1)
	m.Refused(telemetry.QueueFull, 1)
	m.Responded(1)
	m.Hit(0, 1, 1)
	m.Alone(1, 0, &telemetry.Times{Start: 1_000, InputEnd: 2_000, InferEnd: 4_000, End: 8_000})
	m.Copies.Count("x", tensor.Place{}, tensor.Place{Kind: tensor.Device}, telemetry.ForDevice, 1, 12)
	m.Steps([]string{"s"})[0].Done(0, &telemetry.Times{Start: 1_000, InputEnd: 2_000, InferEnd: 4_000, End: 8_000})
	x.Fetched(1, 1)
	b, err := tensor.NewPool().Alloc(12)
	if err != nil {
		t.Fatal(err)
	}
	carried := tensor.Tensor{Buf: b, Len: 12}
	m.Edges([]string{"boxes"})[0].Carried(&carried)
	carried.Release()
	return scrape(t, x)
}

func scrape(t *testing.T, x *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	telemetry.Handler(x, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}
