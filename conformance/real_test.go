package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// realPackages holds the Python packages that the models and clients of published repositories import.
const realPackages prepared = "real"

// realReport is what real/run.py prints of one repository, and apis/run.py of one client.
type realReport struct {
	Name     string
	Failures []string
}

// TestRealRepositories checks the repositories of Triton's tutorials, of its python backend's examples, of its
// documentation and of tritonclient's examples, with the requests of their users. The files are our own, with the
// published values; make test-real explains how to use the published ones.
// shows: repositories.real ensembles
func TestRealRepositories(t *testing.T) {
	t.Parallel()
	runReports(t, realPackages.require(t), "real/run.py")
}

// runReports executes a program in Python that prints the line of a realReport for each of its cases. It has the packages, this server and
// its runtimes.
func runReports(t *testing.T, packages, script string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "python3", "-B", script, "--json")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, preparedtest.Variable("program")+"="+path)
	for _, r := range runtimes.List() {
		if library, err := preparedtest.Find(r.Name); err == nil {
			cmd.Env = append(cmd.Env, preparedtest.Variable(r.Name)+"="+library)
		}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		var r realReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			for _, failure := range r.Failures {
				t.Error(failure)
			}
		})
	}
	if stdout.Len() == 0 {
		t.Errorf("%s has reported nothing", script)
	}
}
