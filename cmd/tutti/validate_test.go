package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/cli"
)

// TestValidateTrace checks that the stack trace of a failing Python model is readable in the report and in the
// server's log.
func TestValidateTrace(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad/config.pbtxt", "backend: \"python\" input { name: \"X\" data_type: TYPE_FP32 dims: 1 } output { name: \"Y\" data_type: TYPE_FP32 dims: 1 }")
	write("bad/1/model.py", "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('"+strings.Repeat("no table ", 30)+"')\n    def execute(self, requests):\n        pass\n")
	var out, log bytes.Buffer
	if code := cli.Main(t.Context(), []string{"tutti", "validate", dir}, &out, &out, components()); code != 1 {
		t.Errorf("validate ended with %d, want 1", code)
	}
	args := append([]string{"tutti", "serve", "--model-repository", dir}, freePorts...)
	if code := cli.Main(t.Context(), args, &log, &log, components()); code != 1 {
		t.Errorf("serve ended with %d, want 1", code)
	}
	for name, text := range map[string]string{"report": out.String(), "log": log.String()} {
		if strings.Contains(text, `\n`) || !strings.Contains(text, "no table; At: ") {
			t.Errorf("the stack trace in the %s:\n%s", name, text)
		}
	}
}

// TestSARIF checks that the report for code scanners satisfies the SARIF schema in the parts that it uses.
func TestSARIF(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a repo")
	model := filepath.Join(dir, "m")
	if err := os.MkdirAll(filepath.Join(model, "1"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "config.pbtxt"), []byte("backend: \"identity\"\nmax_batch_size: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := cli.Main(t.Context(), []string{"tutti", "validate", "--format=sarif", dir}, &out, &errs, components()); code != 1 {
		t.Fatalf("validate ended with %d, want 1: %s", code, &errs)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct{ ID string }
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || log.Schema == "" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" || len(log.Runs[0].Results) == 0 {
		t.Fatalf("not a SARIF log of one run: %s", &out)
	}
	run := log.Runs[0]
	levels := map[string]bool{"error": true, "warning": true, "note": true}
	for _, r := range run.Results {
		if r.Message.Text == "" || !levels[r.Level] || len(r.Locations) != 1 {
			t.Errorf("a result lacks a part: %+v", r)
			continue
		}
		if r.RuleIndex < 0 || r.RuleIndex >= len(run.Tool.Driver.Rules) || run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("rule %s is not at %d", r.RuleID, r.RuleIndex)
		}
		at := r.Locations[0].PhysicalLocation
		if at.ArtifactLocation.URI == "" || bytes.ContainsRune([]byte(at.ArtifactLocation.URI), ' ') {
			t.Errorf("'%s' is no URI", at.ArtifactLocation.URI)
		}
		if r.RuleID == "TUT2006" && (at.Region.StartLine != 2 || at.Region.StartColumn != 1) {
			t.Errorf("max_batch_size is at %+v, want line 2, column 1", at.Region)
		}
	}
}
