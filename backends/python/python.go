package python

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/telemetry"
)

const (
	modelFile = "model.py"
	// interpreterVariable names the interpreter where no setting does.
	interpreterVariable = "TUTTI_PYTHON"
	// runtimeName is the runtime of package runtimes that is an interpreter with numpy.
	runtimeName = "python"
	// systemPython is the interpreter of a machine on which nothing names one.
	systemPython = "python3"
)

// Settings of the backend, as --backend-config=python,KEY=VALUE.
const (
	keyGrowth  = "shm-growth-byte-size"
	keyPath    = "python-path"
	keyPrefix  = "shm-region-prefix-name"
	keyRuntime = "python-runtime"
	keyFirst   = "shm-default-byte-size"
	keyTimeout = "stub-timeout-seconds"
	keyStart   = "start-method"
	keyStrict  = "strict-outputs"
)

const (
	defaultFirst   = 1 << 20
	defaultGrowth  = 1 << 20
	defaultTimeout = 30 * time.Second
	// probeTime bounds how long an interpreter may take to import numpy.
	probeTime = time.Minute
)

// NewFactory returns the python backend. Its settings are python-runtime (or python-path), the interpreter; without it
// that is what the environment's TUTTI_PYTHON names, .venv/bin/python in the working directory or beside the program,
// the environment that 'tutti runtime fetch python' made there, python3 where it has numpy, or such an environment in the
// user's cache. shm-default-byte-size and shm-growth-byte-size are bytes of shared memory of each instance at first and by
// which it grows, start-method how workers start (see the parameter START_METHOD), stub-timeout-seconds how long a worker may
// take to finalize, and to answer when nobody waits any more. strict-outputs (true, false) refuses responses that differ from
// the configuration, which are passed on otherwise.
// shm-region-prefix-name is taken for Triton's sake: the memory has no names.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "python",
		DefaultFile: modelFile,
		ConfigKeys:        []string{keyPath, keyRuntime, keyFirst, keyGrowth, keyPrefix, keyStart, keyStrict, keyTimeout},
		Native:      true,
		Guide: backends.Guide{
			Doc: "Serves models written as `model.py` with `triton_python_backend_utils`, in a process for each instance. It needs a Python " +
				"from 3.9 on with numpy: the one that `TUTTI_PYTHON` names, `.venv/bin/python` in the working directory or beside the program, " +
				"the virtual environment that `tutti runtime fetch python` made there in `.runtime`, or `python3`. " +
				"More packages go there by `.runtime/python-*/bin/python -m pip install NAME`. The parameter `EXECUTION_ENV_PATH` gives a model an environment of its own.",
			Limits: "Tensors are the host's. A response may differ from the configuration in data type, shape and number of rows, as in " +
				"Triton: it is passed on, and warned about once for each output; `--strict-python-outputs` refuses it. In an ensemble the " +
				"next step's request has the rows of the response: one image may become N crops, which share batches with those of other requests.",
			Params: []backends.Param{
				{Key: "EXECUTION_ENV_PATH", Doc: "A packed environment, or its folder, whose interpreter runs the model"},
				{Key: startParam, Doc: "`forkserver` (default): workers are forked from a process that has imported numpy; `spawn`: each starts anew"},
			},
		},
		New:     open,
		Prepare: prepare,
	}
}

// settings are those of the backend.
type settings struct {
	first, growth int
	timeout       time.Duration
	python        string
	spawn         bool // workers are started, not forked
	strict        bool // outputs must be as the configuration declares them
}

// backend starts workers.
type backend struct {
	set     settings
	files   *folder // of the workers' files
	infer   infer.Inferer
	control infer.Lifecycle
	catalog infer.Catalog
	metrics *telemetry.Metrics
	book    book

	mu    sync.Mutex
	nests map[nestKey]*nest // guarded by mu

	found sync.Once
	once  sync.Once
	about string
	fault error // of the interpreter
}

var _ backends.Describer = (*backend)(nil)

func open(o backends.Options) (backends.Backend, error) {
	set, err := readSettings(o.Config)
	if err != nil {
		return nil, err
	}
	files, err := writeScripts(os.TempDir())
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "cannot write the files of python workers: %w", err)
	}
	b := &backend{set: set, files: files, infer: o.Infer, control: o.Control, catalog: o.Catalog, metrics: o.Metrics, nests: map[nestKey]*nest{}}
	if b.catalog != nil {
		b.book.steps = b.steps
	}
	return b, nil
}

func readSettings(values map[string]string) (s settings, err error) {
	s = settings{first: defaultFirst, growth: defaultGrowth, timeout: defaultTimeout, python: cmp.Or(values[keyRuntime], values[keyPath])}
	if s.spawn, err = spawned(values[keyStart], "python setting '"+keyStart+"'"); err != nil {
		return s, err
	}
	if s.strict, err = flagged(values[keyStrict], keyStrict); err != nil {
		return s, err
	}
	if s.first, err = number(values, keyFirst, defaultFirst, 4096, maxFile); err != nil {
		return s, err
	}
	if s.growth, err = number(values, keyGrowth, defaultGrowth, 64, maxFile); err != nil {
		return s, err
	}
	seconds, err := number(values, keyTimeout, int(defaultTimeout/time.Second), 1, 1<<20)
	s.timeout = time.Duration(seconds) * time.Second
	return s, err
}

// Ways to start a worker, in the words of Python's package multiprocessing.
const (
	startFork  = "forkserver"
	startSpawn = "spawn"
)

// spawned reports whether a start method, empty for the usual one, is that of starting every worker anew.
func spawned(method, what string) (bool, error) {
	if method != "" && method != startFork && method != startSpawn {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s: expected '%s' or '%s'", method, what, startFork, startSpawn)
	}
	return method == startSpawn, nil
}

// flagged reads a setting that is true or false, which it is when it is empty.
func flagged(value, key string) (bool, error) {
	if value == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of python setting '%s': expected true or false", value, key)
	}
	return on, nil
}

func number(values map[string]string, key string, byDefault, least, most int) (int, error) {
	v, ok := values[key]
	if !ok {
		return byDefault, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of python setting '%s': expected an integer from %d to %d", v, key, least, most)
	}
	return n, nil
}

// Describe returns the interpreter with its version and numpy's.
func (b *backend) Describe() string {
	_ = b.interpreter(context.Background())
	return b.about
}

// Check returns what is missing on this machine.
func (b *backend) Check() error {
	return b.interpreter(context.Background())
}

// Close ends the nurseries and removes the workers' files.
func (b *backend) Close() error {
	b.mu.Lock()
	nests := b.nests
	b.nests = map[nestKey]*nest{}
	b.mu.Unlock()
	for _, h := range nests {
		h.close()
	}
	return b.files.remove()
}

// interpreter probes the interpreter of models without an environment of their own, once.
func (b *backend) interpreter(ctx context.Context) error {
	python := b.python(ctx)
	b.once.Do(func() { b.about, b.fault = probe(ctx, python) })
	return b.fault
}

// python returns the name of that interpreter, looked for once.
func (b *backend) python(ctx context.Context) string {
	b.found.Do(func() {
		if b.set.python == "" {
			b.set.python = findInterpreter(ctx)
		}
		if abs, err := filepath.Abs(b.set.python); err == nil && strings.Contains(b.set.python, "/") {
			b.set.python = abs
		}
	})
	return b.set.python
}

// prepare checks an interpreter that was fetched.
func prepare(ctx context.Context, path string, _ io.Writer) error {
	_, err := probe(ctx, path)
	return err
}

// findInterpreter returns the interpreter that no setting names.
func findInterpreter(ctx context.Context) string {
	if p := os.Getenv(interpreterVariable); p != "" {
		return p
	}
	var beside []string
	if dir, err := os.Getwd(); err == nil {
		beside = append(beside, dir)
	}
	if exe, err := os.Executable(); err == nil {
		beside = append(beside, filepath.Dir(exe))
	}
	for _, dir := range beside {
		p := filepath.Join(dir, ".venv", "bin", "python")
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if fetched, ok := runtimes.Placed(runtimeName); ok {
		return fetched
	}
	// One in the user's cache was fetched for another folder: the system's goes before it.
	fetched, err := runtimes.Find(runtimeName, "")
	if err != nil || hasNumpy(ctx, systemPython) {
		return systemPython
	}
	return fetched
}

// hasNumpy reports whether an interpreter would find numpy. It does not import it, which takes several times as long.
func hasNumpy(ctx context.Context, python string) bool {
	const look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)"
	return exec.CommandContext(context.WithoutCancel(ctx), python, "-c", look).Run() == nil //nolint:gosec // the interpreter is a constant
}

// probe checks that an interpreter is there and has numpy.
func probe(ctx context.Context, python string) (about string, err error) {
	path, err := exec.LookPath(python)
	if err != nil {
		return "", status.Errorf(status.Unavailable, "the python interpreter '%s' is missing: install Python 3.9 or later, "+
			"or name it by '--backend-config=python,python-runtime=PATH' or %s", python, interpreterVariable)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", "import sys, platform, numpy; print(sys.hexversion, platform.python_version(), numpy.__version__)") //nolint:gosec // the interpreter is a setting
	out, err := cmd.Output()
	if err != nil {
		return "", errNumpy(path, python, err)
	}
	f := strings.Fields(string(out))
	if len(f) != 3 {
		return "", status.Errorf(status.Unavailable, "'%s' is no python interpreter: it printed '%s'", path, strings.TrimSpace(string(out)))
	}
	if v, _ := strconv.Atoi(f[0]); v < 0x03090000 {
		return "", status.Errorf(status.Unavailable, "the python interpreter '%s' has version %s, expected 3.9 or later", path, f[1])
	}
	return "Python " + f[1] + ", numpy " + f[2] + ", " + path, nil
}

func errNumpy(path, given string, err error) error {
	text := err.Error()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(string(e.Stderr)), "\n")
		text = lines[len(lines)-1]
	}
	way := "'" + path + " -m pip install numpy'"
	if given == systemPython { // into which pip may not install
		way = "'tutti runtime fetch python', or name an interpreter that can by " + interpreterVariable
	}
	return status.Errorf(status.Unavailable, "the python interpreter '%s' cannot import numpy (%s): run %s", path, text, way)
}
