package python_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// options returns the options of a backend with this machine's interpreter. It skips the test if no interpreter has
// numpy.
func options(tb testing.TB) backends.Options {
	tb.Helper()
	o := backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"stub-timeout-seconds": "600"}}
	b, err := python.NewFactory().New(o)
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Close()
	if err := b.(backends.Checker).Check(); err != nil {
		preparedtest.Skip(tb, "python", err)
	}
	return o
}

func input(name string, d tensor.DType, dims ...int64) *modelconfig.ModelInput {
	return &modelconfig.ModelInput{Name: name, DataType: modelconfig.DataType(d), Dims: dims}
}

func output(name string, d tensor.DType, dims ...int64) *modelconfig.ModelOutput {
	return &modelconfig.ModelOutput{Name: name, DataType: modelconfig.DataType(d), Dims: dims}
}

// settings returns the settings of a model in testdata/models.
func settings(tb testing.TB, name string, cfg *modelconfig.ModelConfig) backends.Settings {
	tb.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", "models", name))
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Name, cfg.Backend = name, "python"
	return backends.Settings{
		Model: name, Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: 1,
		Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

func addSub(maxBatch int32) *modelconfig.ModelConfig {
	return &modelconfig.ModelConfig{
		MaxBatchSize: maxBatch,
		Input:        []*modelconfig.ModelInput{input("INPUT0", tensor.FP32, -1), input("INPUT1", tensor.FP32, -1)},
		Output:       []*modelconfig.ModelOutput{output("OUTPUT0", tensor.FP32, -1), output("OUTPUT1", tensor.FP32, -1)},
	}
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	o := options(t)
	of := func(v []float32, dims ...int64) backendtest.Value { return backendtest.Of(tensor.FP32, dims, v...) }
	a, b := of([]float32{1, 2, 3, 4}, 2, 2), of([]float32{5, 6, 7, 9}, 2, 2)
	sum, diff := of([]float32{6, 8, 10, 13}, 2, 2), of([]float32{-4, -4, -4, -5}, 2, 2)
	flat := func(v ...float32) backendtest.Value { return of(v, int64(len(v))) }
	backendtest.Run(t, python.NewFactory(), o,
		backendtest.Fixture{
			Name: "batching", Settings: settings(t, "add_sub", addSub(8)), Rows: 2,
			In: []backendtest.Value{a, b}, Want: []backendtest.Value{sum, diff},
			Bad: []backendtest.Bad{
				{Name: "type", In: []backendtest.Value{backendtest.Of(tensor.Int64, []int64{2, 2}, int64(1), 2, 3, 4), b}, Code: status.InvalidArg},
				{Name: "shapes", In: []backendtest.Value{a, of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)}},
			},
		},
		backendtest.Fixture{
			Name: "alone", Settings: settings(t, "add_sub", addSub(0)),
			In: []backendtest.Value{flat(1, 2), flat(3, 5)}, Want: []backendtest.Value{flat(4, 7), flat(-2, -3)},
		},
	)
}

// TestInterpreter checks the errors for an interpreter that is missing, or is not Python.
func TestInterpreter(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	for want, python := range map[string]string{
		"is missing: install Python 3.9": "/nowhere/python",
		"is no python interpreter":       path,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			checkInterpreter(t, python, want)
		})
	}
}

func checkInterpreter(t *testing.T, path, want string) {
	t.Helper()
	b, err := python.NewFactory().New(backends.Options{Config: map[string]string{"python-runtime": path}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	err = b.(backends.Checker).Check()
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("Check = %v, want %q", err, want)
	}
}

// TestFetchedPython checks that the backend finds the environment of 'tutti runtime fetch python': in the working
// directory always, in the user's cache if python3 has no numpy.
func TestFetchedPython(t *testing.T) { //nolint:paralleltest // it changes where interpreters are found
	fetched := preparedtest.Runtime(t, "python")
	dir, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TUTTI_PYTHON", "")
	t.Setenv("XDG_CACHE_HOME", cache)
	place := ""
	for _, r := range runtimes.List() {
		if r.Name == "python" { // any release: the folder is what counts
			place = filepath.Join("python-"+r.Releases[0].Version, r.Releases[0].Library)
		}
	}
	starter(t, fetched, filepath.Join(cache, "tutti", place))
	starter(t, fetched+"' '-I' '-S", filepath.Join(dir, "python3")) // it has no numpy
	runs(t, filepath.Join(cache, "tutti"))
	starter(t, fetched, filepath.Join(dir, "python3"))
	runs(t, dir)
	t.Chdir(t.TempDir())
	starter(t, fetched, filepath.Join(runtimes.Folder, place))
	runs(t, runtimes.Folder)
}

// starter writes an executable script that starts another program.
func starter(t *testing.T, to, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte("#!/bin/sh\nexec '"+to+"' \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
}

// runs checks that a backend without settings uses an interpreter of the folder.
func runs(t *testing.T, folder string) {
	t.Helper()
	b, err := python.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if about := b.(backends.Describer).Describe(); !strings.Contains(about, folder) {
		t.Errorf("the backend runs '%s', want the one in %s", about, folder)
	}
}

// TestWithoutNumpy checks the advice in the error for an interpreter without numpy, found by default or configured.
func TestWithoutNumpy(t *testing.T) { //nolint:paralleltest // it changes where interpreters are found
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	bare := filepath.Join(dir, "python3")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\nexec '"+python3+"' -I -S \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TUTTI_PYTHON", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	checkInterpreter(t, bare, "run '"+bare+" -m pip install numpy'")
	checkInterpreter(t, "", "run 'tutti runtime fetch python', or name an interpreter that can by TUTTI_PYTHON")
}

// TestProbeKilled checks the error for an interpreter whose check is ended by a signal: it names the signal and what was executed, and the
// next load checks again.
func TestProbeKilled(t *testing.T) {
	t.Parallel()
	o := options(t)
	dir := t.TempDir()
	once, python := filepath.Join(dir, "once"), filepath.Join(dir, "python3")
	script := "#!/bin/sh\nif [ -e '" + once + "' ]; then exec '" + preparedtest.Runtime(t, "python") + "' \"$@\"; fi\n: > '" + once + "'\nkill -KILL $$\n"
	if err := os.WriteFile(python, []byte(script), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	o.Config = map[string]string{"python-runtime": python, "start-method": "spawn"}
	check := opened(t, o).(backends.Checker).Check
	err := check()
	for _, want := range []string{"was ended by SIGKILL", "load the model again", python + " -c", "import sys, platform, numpy"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "cannot import numpy") {
		t.Errorf("%v names another reason", err)
	}
	if status.RetryAfter(err) == 0 {
		t.Errorf("%v does not say when to retry", err)
	}
	if err := check(); err != nil {
		t.Errorf("the next check: %v", err)
	}
}
