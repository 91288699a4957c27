package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/telemetry"
)

const (
	modelFile = "model.py"
	// interpreterVariable is the environment variable that names the interpreter when no setting does.
	interpreterVariable = "TUTTI_PYTHON"
	// runtimeName is the name that 'tutti runtime fetch' has for an interpreter with numpy.
	runtimeName = "python"
	// systemPython is the interpreter when nothing names one.
	systemPython = "python3"
)

// Keys of --backend-config=python,KEY=VALUE.
const (
	keyGrowth  = "shm-growth-byte-size"
	keyPath    = "python-path"
	keyPrefix  = "shm-region-prefix-name"
	keyRuntime = "python-runtime"
	keyFirst   = "shm-default-byte-size"
	keyTimeout = "stub-timeout-seconds"
	keyStart   = "start-method"
	keyStrict  = "strict-outputs"
	keySandbox = "sandbox"
	keyPass    = "pass-environment"
)

// loadTime is how long a worker may take to import model.py, and then to initialize, unless stub-timeout-seconds is set: models may load
// weights for minutes.
const loadTime = 10 * time.Minute

// probeTime is the most time that an interpreter may take to import numpy.
const probeTime = time.Minute

// NewFactory returns the python backend. Its settings (--backend-config=python,KEY=VALUE) are:
//
//   - python-runtime or python-path: the interpreter. The default is the first of: the environment variable TUTTI_PYTHON,
//     .venv/bin/python in the working directory or beside the program, the environment that 'tutti runtime fetch python'
//     created there, python3 if it has numpy, such an environment in the user's cache.
//   - shm-default-byte-size, shm-growth-byte-size: initial size and growth of an instance's shared memory.
//   - start-method: how workers start, see the parameter START_METHOD.
//   - stub-timeout-seconds: how long a worker may take to import model.py and to initialize (10 minutes if it is not set), to finalize,
//     or to return after its requests were cancelled (30 seconds if it is not set).
//   - sandbox (true, false): start workers without network and without the way to new privileges.
//   - pass-environment: names of environment variables that workers get although they look like secrets, or * for all.
//   - strict-outputs (true, false): refuse responses that differ from the configuration, instead of passing them on.
//   - shm-region-prefix-name: accepted and ignored, because the shared memory has no names.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "python",
		DefaultFile: modelFile,
		ConfigKeys:  []string{keyPass, keyPath, keyRuntime, keySandbox, keyFirst, keyGrowth, keyPrefix, keyStart, keyStrict, keyTimeout},
		Native:      true,
		Guide: backends.Guide{
			Doc: "Serves models written as `model.py` with `triton_python_backend_utils`, with one process for each instance. It needs " +
				"Python 3.9 or later with numpy: the one that `TUTTI_PYTHON` names, `.venv/bin/python` in the working directory or beside the program, " +
				"the virtual environment that `tutti runtime fetch python` made there in `.runtime`, or `python3`. " +
				"Variables of the server's environment that look like secrets do not reach models, see [security.md](security.md#python-models). " +
				"More packages go there by `.runtime/python-*/bin/python -m pip install NAME`. The parameter `EXECUTION_ENV_PATH` gives a model its own environment.",
			Limits: "Inputs are in host memory unless `FORCE_CPU_ONLY_INPUT_TENSORS` is `no`; outputs made by `from_dlpack` of a GPU tensor stay on " +
				"the GPU. A process that the model forks cannot use GPU tensors. A response may differ from the configuration in data type, shape and number of rows, as in " +
				"Triton: it is passed on, with one warning for each output; `--strict-python-outputs` refuses it. In an ensemble the " +
				"next step's request has the rows of the response: one image may become N crops, which share batches with those of other requests.",
			Params: []backends.Param{
				{Key: "EXECUTION_ENV_PATH", Doc: "A packed environment, or its folder, whose interpreter runs the model"},
				{Key: forceParam, Doc: "`yes` (default): inputs are on the host; `no`: they stay where they are, and `is_cpu()` tells"},
				{Key: startParam, Doc: "`forkserver` (default): workers are forked from a process that has imported numpy; `spawn`: each is a new process"},
			},
		},
		New:  open,
		Auto: func(map[string]string) config.Auto { return config.AutoGPU }, // as Triton's
		Prepare: func(ctx context.Context, path string, _ io.Writer) error {
			_, err := probe(ctx, path, os.Environ())
			return err
		},
	}
}

// settings are the parsed values of --backend-config.
type settings struct {
	first, growth int
	timeout       time.Duration
	load          time.Duration // for the import of model.py, and for initialize
	sandbox       bool
	pass          []string // names of secrets that workers get
	python        string
	spawn         bool // spawn workers instead of forking them
	strict        bool // refuse outputs that differ from the configuration
}

// backend is the open backend. It is safe for concurrent use.
type backend struct {
	set       settings
	starter   *starter
	scripts   *scriptFolder
	infer     infer.Inferer
	control   infer.Lifecycle
	catalog   infer.Catalog
	crashes   backends.CrashRecorder
	places    *tensor.Places
	metrics   *telemetry.Metrics
	callGraph callGraph

	mu          sync.Mutex
	forkServers map[interpreterKey]*forkServers // guarded by mu

	findOnce sync.Once // sets set.python

	probing  sync.Mutex
	probed   bool   // the interpreter is checked; guarded by probing
	version  string // guarded by probing
	probeErr error  // guarded by probing
}

func open(o backends.Options) (backends.Backend, error) {
	set, err := readSettings(o.Config)
	if err != nil {
		return nil, err
	}
	files, err := writeScripts(os.TempDir())
	if err != nil {
		err = diskfull.Explain(err, os.TempDir(), "start the server with TMPDIR at another disk")
		return nil, &status.Error{Code: status.Unavailable, Reason: status.StorageUnavailable, Msg: "cannot write the files of python workers: " + err.Error(), Err: err, RetryAfter: status.RetryAfter(err)}
	}
	b := &backend{set: set, starter: newStarter(set.sandbox), scripts: files, infer: o.Infer, control: o.Control, catalog: o.Catalog, crashes: o.Crashes, places: o.Places, metrics: o.Metrics, forkServers: map[interpreterKey]*forkServers{}}
	b.callGraph.instances, b.callGraph.ensembles = map[string]int{}, map[string][]string{}
	if b.catalog != nil {
		b.callGraph.steps = b.steps
	}
	return b, nil
}

func readSettings(values map[string]string) (s settings, err error) {
	number := func(key string, byDefault, least, most int) int {
		v, ok := values[key]
		if !ok || err != nil {
			return byDefault
		}
		n, bad := strconv.Atoi(v)
		if bad != nil || n < least || n > most {
			err = status.Errorf(status.InvalidArg, "unexpected value '%s' of python setting '%s': expected an integer from %d to %d", v, key, least, most)
		}
		return n
	}
	s.python = cmp.Or(values[keyRuntime], values[keyPath])
	s.spawn, err = parseStartMethod(values[keyStart], "python setting '"+keyStart+"'")
	for key, to := range map[string]*bool{keyStrict: &s.strict, keySandbox: &s.sandbox} {
		if v := values[key]; v != "" && err == nil {
			if *to, err = strconv.ParseBool(v); err != nil {
				err = status.Errorf(status.InvalidArg, "unexpected value '%s' of python setting '%s': expected true or false", v, key)
			}
		}
	}
	if err == nil {
		s.pass, err = parsePassed(values[keyPass])
	}
	s.first = number(keyFirst, 1<<20, 4096, maxFile)
	s.growth = number(keyGrowth, 1<<20, 64, maxFile)
	s.timeout = time.Duration(number(keyTimeout, 30, 1, 1<<20)) * time.Second
	if s.load = s.timeout; values[keyTimeout] == "" {
		s.load = loadTime
	}
	return s, err
}

// Start methods of workers, named as in Python's multiprocessing.
const (
	startFork  = "forkserver"
	startSpawn = "spawn"
)

// parseStartMethod reports whether method is "spawn". An empty method is the default, "forkserver".
func parseStartMethod(method, what string) (bool, error) {
	if method != "" && method != startFork && method != startSpawn {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s: expected '%s' or '%s'", method, what, startFork, startSpawn)
	}
	return method == startSpawn, nil
}

// Describe returns the versions of Python and numpy, and the path of the interpreter.
func (b *backend) Describe() string {
	version, _ := b.interpreter(context.Background())
	return version
}

// Check returns an error when the interpreter or numpy is missing.
func (b *backend) Check() error {
	_, err := b.interpreter(context.Background())
	return err
}

// Close stops the fork servers and removes the workers' scripts.
func (b *backend) Close() error {
	b.mu.Lock()
	all := b.forkServers
	b.forkServers = map[interpreterKey]*forkServers{}
	b.mu.Unlock()
	for _, s := range all {
		s.close()
	}
	b.starter.close()
	return b.scripts.remove()
}

// interpreter checks the default interpreter, once unless the check was cut off, and returns its version. Models with
// EXECUTION_ENV_PATH use another one.
func (b *backend) interpreter(ctx context.Context) (version string, err error) {
	python := b.python(ctx)
	b.probing.Lock()
	defer b.probing.Unlock()
	if !b.probed {
		b.version, b.probeErr = probe(ctx, python, b.environ())
		b.probed = status.RetryAfter(b.probeErr) == 0
	}
	return b.version, b.probeErr
}

// python returns the name or path of the default interpreter. It is searched for once.
func (b *backend) python(ctx context.Context) string {
	b.findOnce.Do(func() {
		if b.set.python == "" {
			b.set.python = findInterpreter(ctx)
		}
		if abs, err := filepath.Abs(b.set.python); err == nil && strings.Contains(b.set.python, "/") {
			b.set.python = abs
		}
	})
	return b.set.python
}

// findInterpreter returns the default interpreter when no setting names one.
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
	if fetched, ok := runtimes.Fetched(runtimeName); ok {
		return fetched
	}
	// An environment in the user's cache was fetched for another folder, so the system's interpreter precedes it.
	fetched, err := runtimes.Find(runtimeName, "")
	if err != nil || hasNumpy(ctx, systemPython) {
		return systemPython
	}
	return fetched
}

// hasNumpy reports whether an interpreter finds numpy. It does not import numpy, which would take several times as long.
func hasNumpy(ctx context.Context, python string) bool {
	const look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)"
	return exec.CommandContext(context.WithoutCancel(ctx), python, "-c", look).Run() == nil //nolint:gosec // the interpreter is a constant
}

// probeCode is what probe has an interpreter execute.
const probeCode = "import sys, platform, numpy; print(sys.hexversion, platform.python_version(), numpy.__version__)"

// probe checks that an interpreter exists, is 3.9 or later, and has numpy. version describes it. An error after which the same check may
// succeed has a time to retry.
func probe(ctx context.Context, python string, env []string) (version string, err error) {
	path, err := exec.LookPath(python)
	if err != nil {
		return "", status.Reasonf(status.RuntimeMissing, "the python interpreter '%s' is missing: install Python 3.9 or later, "+
			"or name it by '--backend-config=python,python-runtime=PATH' or %s", python, interpreterVariable)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", probeCode) //nolint:gosec // the interpreter is a setting
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		return "", errProbe(ctx, path, python, err)
	}
	f := strings.Fields(string(out))
	if len(f) != 3 {
		return "", status.Reasonf(status.RuntimeMissing, "'%s' is no python interpreter: it printed '%s'", path, strings.TrimSpace(string(out)))
	}
	if v, _ := strconv.Atoi(f[0]); v < 0x03090000 {
		return "", status.Reasonf(status.RuntimeMissing, "the python interpreter '%s' has version %s, expected 3.9 or later", path, f[1])
	}
	return "Python " + f[1] + ", numpy " + f[2] + ", " + path, nil
}

// errProbe explains a check that failed: it took too long, was ended by a signal, or numpy is missing.
func errProbe(ctx context.Context, path, given string, err error) error {
	text := err.Error()
	e, exited := errors.AsType[*exec.ExitError](err)
	if exited {
		lines := strings.Split(strings.TrimSpace(string(e.Stderr)), "\n")
		text = cmp.Or(lines[len(lines)-1], text)
	}
	if ctx.Err() != nil {
		return errCutOff(path, fmt.Sprintf("took longer than %v", probeTime), "the machine may be overloaded")
	}
	if exited {
		if state, ok := e.Sys().(syscall.WaitStatus); ok && state.Signaled() {
			return errCutOff(path, "was ended by "+unix.SignalName(state.Signal()),
				"a SIGKILL may come from the kernel when memory is full, or from another program")
		}
	}
	way := "'" + path + " -m pip install numpy'"
	if given == systemPython { // pip may refuse to install into it
		way = "'tutti runtime fetch python', or name an interpreter that can by " + interpreterVariable
	}
	return status.Reasonf(status.RuntimeMissing, "the python interpreter '%s' cannot import numpy (%s): run %s", path, text, way)
}

// errCutOff is the error of a check without a result: the next load checks again.
func errCutOff(path, how, hint string) error {
	return &status.Error{Code: status.Unavailable, RetryAfter: retryAfter, Msg: fmt.Sprintf(
		"the check of the python interpreter %s before it had a result: %s; load the model again. It ran: %s -c \"%s\"", how, hint, path, probeCode)}
}
