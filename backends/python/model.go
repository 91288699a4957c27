package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// model is one loaded version of a Python model.
type model struct {
	b           *backend
	sig         *config.Signature
	cfg         *modelconfig.ModelConfig // completed
	given       *modelconfig.ModelConfig // nil when auto_complete_config changed nothing
	json        string                   // cfg as JSON, for initialize
	version     int64
	dir         string
	file        string
	python      string
	env         []string
	forkServers *forkServers // nil: workers are spawned
	alloc       tensor.Allocator
	copied      func(name string, from, to tensor.Place, bytes int) // backends.Settings.Copied, nil for none
	inputsStay  bool                                                // inputs at GPUs are passed to the model there
	log         *slog.Logger

	// Warnings that were logged: for each output a wrong type or shape; repeated and undeclared outputs.
	warned               []atomic.Bool
	repeated, undeclared atomic.Bool
	failures             failureLog
	crashes              *crash.Requests
	alone                atomic.Bool  // it has called other models, or responded after execute: its requests must not share a call
	outages              atomic.Int32 // instances without a worker
	serialTime           time.Duration
	mean                 atomic.Int64 // ns that a worker takes for a request, 0 for not known

	mu     sync.Mutex
	spare  *worker     // the worker of Load, for the first instance; guarded by mu
	made   int         // number of created instances; guarded by mu
	live   []*instance // guarded by mu
	closed bool        // guarded by mu
}

var (
	_ backends.ConfigCompleter  = (*model)(nil)
	_ backends.ReadinessChecker = (*model)(nil)
	_ backends.Reporter         = (*model)(nil)
	_ backends.Degrader         = (*model)(nil)
	_ backends.SerialModel      = (*model)(nil)
)

const (
	// serialTime is how long the executions of several requests in one packet take by the mean, at most: a few times what it costs to switch
	// to the worker and back. The worker leaves the rest unexecuted once they have taken as long.
	serialTime = 200 * time.Microsecond
	// mostSerial bounds the requests of such a packet.
	mostSerial = 16
	// serialBytes bounds the inputs of such a packet: larger ones cost more to copy than a switch, and are not copied where a worker gets one
	// request at a time.
	serialBytes = 64 << 10
	// outlier is by what factor an execution may exceed the mean in the mean: the system may have interrupted it.
	outlier = 8
	// meanWeight is the weight of the former mean against that of the newest execution.
	meanWeight = 8
)

// Serial implements backends.SerialModel. It is 1 for a model that calls others: its calls belong to the only request in flight, with
// which they are cancelled. It is 1 for a model that responds after execute, which would otherwise work on several requests at a time. And it
// is 1 while an instance has no worker: requests must not wait for the start of one if another instance can take them.
func (m *model) Serial() int {
	mean := m.mean.Load()
	if mean == 0 || m.alone.Load() || m.outages.Load() > 0 {
		return 1
	}
	return int(min(max(int64(m.serialTime)/mean, 1), mostSerial))
}

// took adds the time that the worker took for a number of requests to the mean.
//
// hot: a lost update does no harm.
func (m *model) took(ns int64, requests int) {
	mean, sample := m.mean.Load(), ns/int64(requests)
	if mean == 0 {
		mean = sample
	}
	sample = min(sample, outlier*mean)
	m.mean.Store(max(mean+(sample-mean)/meanWeight, 1))
}

// Load imports model.py in a worker and calls auto_complete_config. The worker then serves the first instance.
func (b *backend) Load(ctx context.Context, s backends.Settings) (_ backends.Model, err error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	m := &model{b: b, cfg: s.DeclaredConfig(), version: s.Version, dir: s.ModelDir, file: s.File(modelFile), alloc: s.Alloc, copied: s.Copied, log: s.Log}
	m.serialTime = serialTime
	m.sig = m.signature(s.Model)
	if m.inputsStay, err = inputsStay(&s); err != nil {
		return nil, status.Prefixf(err, "%s: ", m.failedLoad())
	}
	defer func() {
		if err != nil {
			m.releaseForkServers()
		}
	}()
	if strings.ContainsAny(s.Model, unsafeNames) {
		return nil, status.Errorf(status.InvalidArg, "%s: Invalid stub name: contains invalid characters: expected none of %s", m.failedLoad(), unsafeNames)
	}
	var ofDir, ofFile error
	m.dir, ofDir = filepath.Abs(m.dir) // for workers
	m.file, ofFile = filepath.Abs(m.file)
	if err := errors.Join(ofDir, ofFile); err != nil {
		return nil, status.Errorf(status.Internal, "%s: %w", m.failedLoad(), err)
	}
	if !files.IsRegular(m.file) {
		return nil, config.MissingFile(status.Errorf(status.NotFound, "%s: Failed to preinitialize Python stub: Python model file not found in '%s'", m.failedLoad(), m.file), m.file)
	}
	if err := m.environment(ctx, &s); err != nil {
		return nil, status.Prefixf(err, "%s: ", m.failedLoad())
	}
	w, err := startWorker(ctx, m)
	if err == nil {
		if err = m.complete(ctx, w, !s.Strict); err != nil {
			w.close()
		}
	}
	if err != nil {
		return nil, m.diagnose(status.Prefixf(err, "%s from '%s': ", m.failedLoad(), m.file), s.File(modelFile))
	}
	text, err := config.JSON(m.cfg)
	if err != nil {
		w.close()
		return nil, err
	}
	m.json, m.spare = string(text), w
	m.crashes = crash.New(crash.Settings{Signature: m.sig, Log: m.log, Captures: b.crashes})
	b.callGraph.set(s.Model, max(1, s.Instances))
	return m, nil
}

// unsafeNames are the characters that Triton forbids in the name of a Python model.
const unsafeNames = ";|&$`<>()[]{}\\\"'*?~#!"

// failedLoad begins the error of a model that cannot be loaded, as in Triton.
func (m *model) failedLoad() string {
	return fmt.Sprintf("failed to load '%s' version %d", m.sig.Model, m.version)
}

func (m *model) signature(name string) *config.Signature {
	sig := config.SignatureOf(config.DeclareSequence(m.cfg)).AtModel()
	sig.Model, sig.Version = name, m.version
	sig.Computed, sig.Scattered = nil, nil
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		out.Unbatched = false           // each request has its own response, so nothing is split
		out.Unchecked = !m.b.set.strict // a sequence state must match its declaration, because the server keeps it
		for _, st := range m.cfg.GetSequenceBatching().GetState() {
			out.Unchecked = out.Unchecked && st.GetOutputName() != out.Name
		}
	}
	m.warned = make([]atomic.Bool, len(sig.Outputs))
	return sig
}

// complete calls auto_complete_config when the model has it.
func (m *model) complete(ctx context.Context, w *worker, allowed bool) error {
	if !allowed || !w.about.Complete {
		return nil
	}
	text, err := config.JSON(m.cfg)
	if err != nil {
		return err
	}
	var done struct {
		Config json.RawMessage `json:"config"`
	}
	if err := w.prepare(ctx, kindComplete, "complete the configuration", map[string]any{"config": json.RawMessage(text)}, &done); err != nil {
		return err
	}
	cfg, err := config.ParseJSON(string(done.Config))
	if err != nil {
		return status.Prefixf(err, "unexpected configuration from auto_complete_config: ")
	}
	if err := config.Normalise(cfg, m.cfg.GetName()); err != nil {
		return err
	}
	if err := errors.Join(config.Check(cfg)...); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected configuration from auto_complete_config: %w", err)
	}
	m.cfg, m.given = cfg, cfg
	m.sig = m.signature(m.sig.Model)
	return nil
}

// Completed implements backends.ConfigCompleter: the result of auto_complete_config, or nil.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.given }

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.sig }

// NewInstance starts a worker and calls initialize of the model. The place is that of the instance group, which the model learns as
// model_instance_kind and model_instance_device_id; the server makes no context there.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	m.mu.Lock()
	n, closed := m.made, m.closed
	m.made++
	m.mu.Unlock()
	if closed {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.sig.Model)
	}
	x := &instance{m: m, name: m.instanceName(n), at: at, cursors: make([]cursor, len(m.sig.Inputs))}
	x.single.idle = make(chan struct{}, 1)
	x.life, x.end = context.WithCancel(context.Background())
	x.restarter = time.AfterFunc(restartMost, x.replace)
	x.restarter.Stop() // died sets it
	w, err := x.start(ctx)
	if err != nil {
		_ = x.Close() //nolint:contextcheck // Close limits its own time; an instance left open would start its process again
		return nil, m.diagnose(status.Prefixf(err, "unable to initialize model '%s' from '%s': ", m.sig.Model, m.file), m.file)
	}
	x.use(w)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = append(m.live, x)
	return x, nil
}

// instanceName returns the name of instance n, as in Triton.
func (m *model) instanceName(n int) string { return m.sig.Model + "_0_" + strconv.Itoa(n) }

// Ready implements backends.ReadinessChecker: every instance must have a live worker, and is_ready must return True.
func (m *model) Ready() error {
	m.mu.Lock()
	live := slices.Clone(m.live)
	m.mu.Unlock()
	for _, x := range live {
		if err := x.ready(); err != nil {
			return err
		}
	}
	return nil
}

// Report implements backends.Reporter.
func (m *model) Report() string { return m.crashes.Report() }

// Degraded implements backends.Degrader.
func (m *model) Degraded() (reason string, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list backends.Outages
	for _, x := range m.live {
		list.Add(x.down())
	}
	return list.Text(len(m.live))
}

// initialise returns the body of INIT.
func (m *model) initialise(instance string, at tensor.Place) map[string]any {
	kind := "CPU"
	if at.Kind == tensor.Device {
		kind = "GPU"
	}
	driver, gpus := m.b.gpuList()
	return map[string]any{
		"driver": driver, "gpus": gpus,
		"args": map[string]string{
			"model_config": m.json, "model_instance_kind": kind, "model_instance_name": instance, "model_instance_device_id": strconv.Itoa(int(at.ID)),
			"model_repository": m.dir, "model_version": strconv.FormatInt(m.version, 10), "model_name": m.sig.Model,
		},
		"inputs": portPairs(m.sig.Inputs), "outputs": portPairs(m.sig.Outputs), "decoupled": m.sig.Decoupled, "growth": m.b.set.growth,
	}
}

func portPairs(ports []config.Port) [][2]string {
	list := make([][2]string, len(ports))
	for i := range ports {
		list[i] = [2]string{ports[i].Name, ports[i].DType.String()}
	}
	return list
}

func (m *model) takeSpare() *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.spare
	m.spare = nil
	return w
}

// Close implements backends.Model.
func (m *model) Close() error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	m.b.callGraph.set(m.sig.Model, 0)
	if w := m.takeSpare(); w != nil {
		w.close()
	}
	m.releaseForkServers()
	return nil
}

// The rate limit of logged failures of a model: a burst, and the interval of further ones. Triton logs every failure; a model that
// fails thousands of times per second would fill the disk.
const (
	failureBurst = 20
	failureEvery = time.Second / 5
)

// failureLog limits the rate at which failures of a model are logged, and counts the others. It is safe for concurrent use.
type failureLog struct {
	mu     sync.Mutex
	full   time.Time // when a whole burst may be logged again; guarded by mu
	hidden int       // failures that were not logged since the last one that was; guarded by mu
}

// admit reports whether to log a failure, and how many before it were not logged.
func (f *failureLog) admit(now time.Time) (ok bool, hidden int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full.Before(now) {
		f.full = now
	}
	if f.full.Sub(now) > (failureBurst-1)*failureEvery {
		f.hidden++
		return false, 0
	}
	f.full = f.full.Add(failureEvery)
	hidden, f.hidden = f.hidden, 0
	return true, hidden
}

// failed logs an exception of the model in an instance.
func (m *model) failed(instance, text string) {
	ok, hidden := m.failures.admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{slog.String("instance", instance), slog.String("error", text)}
	if hidden > 0 {
		attrs = append(attrs, slog.Int("not_logged", hidden))
	}
	m.log.Error("a python model failed", attrs...)
}

var (
	noModule   = regexp.MustCompile(`No module named '([^'.]+)`)
	syntaxLine = regexp.MustCompile(`SyntaxError: .*\(.*, line (\d+)\)`)
	frameLine  = regexp.MustCompile(`(?m)^\s*(\S.*)\((\d+)\): `)
)

// diagnose adds the position in model.py and a fix to a load error. given is the path as the user configured it. Errors of other
// files and of a missing interpreter stay as they are.
func (m *model) diagnose(err error, given string) error {
	if _, known := config.Diagnosed(err); known || status.CodeOf(err) == status.Unavailable || status.CodeOf(err) == status.Cancelled {
		return err
	}
	text := err.Error()
	err = config.At(config.Coded(config.PythonModel, "", err), given, m.lineOf(text))
	switch found := noModule.FindStringSubmatch(text); {
	case found != nil:
		return config.WithFix(err, "run '"+m.python+" -m pip install "+found[1]+"', or give the model an environment that has it by the parameter EXECUTION_ENV_PATH")
	case strings.Contains(text, "SyntaxError: "):
		return config.WithFix(err, "correct the line")
	case strings.Contains(text, "expected a class "), strings.Contains(text, "expected a method "):
		return config.WithFix(err, "write class TritonPythonModel with a method execute(self, requests)")
	}
	if names := m.withheld(text); len(names) > 0 {
		passed := slices.Concat(m.b.set.pass, names)
		slices.Sort(passed)
		return config.WithFix(err, "the model may lack "+strings.Join(names, ", ")+": variables that look like secrets do not reach models; "+
			"if that is the cause and the model may have them, start the server with --backend-config=python,"+keyPass+"="+strings.Join(slices.Compact(passed), ","))
	}
	return err
}

// withheld returns the names of those environment variables that models do not get, although the text names them or the model's file
// has them in quotes. It returns no other variables, for example those whose name is only a word of a comment.
func (m *model) withheld(text string) (names []string) {
	source, _ := os.ReadFile(m.file) // without it, the text alone tells
	for _, name := range environ.Secrets(os.Environ(), m.b.set.pass) {
		quoted := regexp.QuoteMeta(name)
		if regexp.MustCompile(`\b`+quoted+`\b`).MatchString(text) || regexp.MustCompile(`"`+quoted+`"|'`+quoted+`'`).Match(source) {
			names = append(names, name)
		}
	}
	return names
}

// lineOf returns the line of the model's file in a traceback, or 0.
func (m *model) lineOf(text string) int {
	digits := ""
	if found := syntaxLine.FindStringSubmatch(text); found != nil {
		digits = found[1]
	}
	for _, frame := range frameLine.FindAllStringSubmatch(text, -1) {
		if digits == "" && frame[1] == m.file {
			digits = frame[2]
		}
	}
	line, _ := strconv.Atoi(digits) // 0 when there is none
	return line
}
