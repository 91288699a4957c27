package python

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
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
)

const (
	defaultFirst   = 1 << 20
	defaultGrowth  = 1 << 20
	defaultTimeout = 30 * time.Second
	// probeTime is the most time that an interpreter may take to import numpy.
	probeTime = time.Minute
)

// NewFactory returns the python backend. Its settings (--backend-config=python,KEY=VALUE) are:
//
//   - python-runtime or python-path: the interpreter. The default is the first of: the environment variable TUTTI_PYTHON,
//     .venv/bin/python in the working directory or beside the program, the environment that 'tutti runtime fetch python'
//     created there, python3 if it has numpy, such an environment in the user's cache.
//   - shm-default-byte-size, shm-growth-byte-size: initial size and growth of an instance's shared memory.
//   - start-method: how workers start, see the parameter START_METHOD.
//   - stub-timeout-seconds: how long a worker may take to finalize, or to return after its requests were cancelled.
//   - strict-outputs (true, false): refuse responses that differ from the configuration, instead of passing them on.
//   - shm-region-prefix-name: accepted and ignored, because the shared memory has no names.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "python",
		DefaultFile: modelFile,
		ConfigKeys:  []string{keyPath, keyRuntime, keyFirst, keyGrowth, keyPrefix, keyStart, keyStrict, keyTimeout},
		Native:      true,
		Guide: backends.Guide{
			Doc: "Serves models written as `model.py` with `triton_python_backend_utils`, with one process for each instance. It needs " +
				"Python 3.9 or later with numpy: the one that `TUTTI_PYTHON` names, `.venv/bin/python` in the working directory or beside the program, " +
				"the virtual environment that `tutti runtime fetch python` made there in `.runtime`, or `python3`. " +
				"More packages go there by `.runtime/python-*/bin/python -m pip install NAME`. The parameter `EXECUTION_ENV_PATH` gives a model its own environment.",
			Limits: "Tensors are in host memory. A response may differ from the configuration in data type, shape and number of rows, as in " +
				"Triton: it is passed on, with one warning for each output; `--strict-python-outputs` refuses it. In an ensemble the " +
				"next step's request has the rows of the response: one image may become N crops, which share batches with those of other requests.",
			Params: []backends.Param{
				{Key: "EXECUTION_ENV_PATH", Doc: "A packed environment, or its folder, whose interpreter runs the model"},
				{Key: startParam, Doc: "`forkserver` (default): workers are forked from a process that has imported numpy; `spawn`: each is a new process"},
			},
		},
		New:     open,
		Prepare: prepare,
	}
}

// settings are the parsed values of --backend-config.
type settings struct {
	first, growth int
	timeout       time.Duration
	python        string
	spawn         bool // spawn workers instead of forking them
	strict        bool // refuse outputs that differ from the configuration
}

// backend is the open backend. It is safe for concurrent use.
type backend struct {
	set       settings
	scripts   *scriptFolder
	infer     infer.Inferer
	control   infer.Lifecycle
	catalog   infer.Catalog
	metrics   *telemetry.Metrics
	callGraph callGraph

	mu          sync.Mutex
	forkServers map[interpreterKey]*forkServers // guarded by mu

	findOnce  sync.Once // sets set.python
	probeOnce sync.Once // sets version and probeErr
	version   string
	probeErr  error
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
	b := &backend{set: set, scripts: files, infer: o.Infer, control: o.Control, catalog: o.Catalog, metrics: o.Metrics, forkServers: map[interpreterKey]*forkServers{}}
	if b.catalog != nil {
		b.callGraph.steps = b.steps
	}
	return b, nil
}

func readSettings(values map[string]string) (s settings, err error) {
	s = settings{first: defaultFirst, growth: defaultGrowth, timeout: defaultTimeout, python: cmp.Or(values[keyRuntime], values[keyPath])}
	if s.spawn, err = parseStartMethod(values[keyStart], "python setting '"+keyStart+"'"); err != nil {
		return s, err
	}
	if s.strict, err = parseBool(values[keyStrict], keyStrict); err != nil {
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

// Start methods of workers, named as in Python's multiprocessing.
const (
	startFork  = "forkserver"
	startSpawn = "spawn"
)

// spawned reports whether method is "spawn". An empty method is the default, "forkserver".
func parseStartMethod(method, what string) (bool, error) {
	if method != "" && method != startFork && method != startSpawn {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s: expected '%s' or '%s'", method, what, startFork, startSpawn)
	}
	return method == startSpawn, nil
}

// flagged parses true or false. An empty value is false.
func parseBool(value, key string) (bool, error) {
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

// Describe returns the versions of Python and numpy, and the path of the interpreter.
func (b *backend) Describe() string {
	_ = b.interpreter(context.Background())
	return b.version
}

// Check returns an error when the interpreter or numpy is missing.
func (b *backend) Check() error {
	return b.interpreter(context.Background())
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
	return b.scripts.remove()
}
