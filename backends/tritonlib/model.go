package tritonlib

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
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
	"github.com/tutti-server/tutti/internal/subprocess"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// NewFactory returns the factory of the backend for libraries made for Triton. A model does not name it: it names the backend NAME of
// libtriton_NAME.so. The program must call Serve when Hidden says so.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:       Name,
		ConfigKeys: []string{backends.KeyDirectory},
		Guide:      guide(),
		Adopts:     backends.FindLibrary,
		New:        func(o backends.Options) (backends.Backend, error) { return &backend{options: o}, nil },
	}
}

// backend loads models with libraries. It is safe for concurrent use.
type backend struct {
	options backends.Options

	memory subprocess.Memory
}

// Close does nothing: models end their processes.
func (*backend) Close() error { return nil }

var (
	_ backends.Checker   = (*backend)(nil)
	_ backends.Describer = (*backend)(nil)
)

// Check implements backends.Checker: a folder of libraries that the settings name can be read. That of Triton need not be there.
func (b *backend) Check() error {
	dir := b.options.Config[backends.KeyDirectory]
	if dir == "" {
		return nil
	}
	if _, err := backends.Libraries(dir); err != nil {
		return status.Errorf(status.NotFound, "the folder of Triton's backends, --backend-directory, cannot be read: %w", err)
	}
	return nil
}

// Describe implements backends.Describer with the libraries in the folder of Triton's backends.
func (b *backend) Describe() string {
	dir := backends.LibraryDirectory(b.options.Config)
	libraries, _ := backends.Libraries(dir) // none where it cannot be read
	if len(libraries) == 0 {
		return "no libraries NAME/libtriton_NAME.so in " + dir
	}
	return "libraries in " + dir + ": " + strings.Join(libraries, ", ")
}

// model is a loaded model, with one process for all its instances.
type model struct {
	*crash.Keeper[*process]

	name     string
	about    description
	shared   *tensor.SharedMemory
	staging  *tensor.Pool
	log      *slog.Logger
	metrics  *telemetry.Metrics
	counters *crash.Counters
	crashes  *crash.Requests
	sig      *config.Signature
	states   []bool                   // for each output: it is the state of a sequence
	given    *modelconfig.ModelConfig // nil when the library has completed nothing

	closed atomic.Bool

	changes sync.Mutex // held while instances are made or closed

	mu        sync.Mutex
	instances map[int]*instance // by number; guarded by mu
	named     map[string]int    // the number of instances that were made of a group; guarded by mu
}

var (
	_ backends.GroupModel       = (*model)(nil)
	_ backends.ConfigCompleter  = (*model)(nil)
	_ backends.ReadinessChecker = (*model)(nil)
	_ backends.Reporter         = (*model)(nil)
	_ backends.Degrader         = (*model)(nil)
)

// Load starts the process of the model, which loads the library and initializes the model.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	about, err := b.describe(ctx, &s)
	if err != nil {
		return nil, err
	}
	if err := checkLibrary(about.Library); err != nil {
		return nil, status.Prefixf(err, "model '%s': ", s.Model)
	}
	m := &model{name: s.Model, about: about, log: s.Log, metrics: b.options.Metrics, instances: map[int]*instance{}, named: map[string]int{}}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.shared, m.staging, err = b.memory.For(s.Alloc); err != nil {
		return nil, status.Reasonf(status.MemoryLimit, "no shared memory for backend libraries: %w", err)
	}
	p, made, err := m.start(ctx)
	if err != nil {
		return nil, status.Prefixf(err, "model '%s', backend library '%s': ", s.Model, about.Library)
	}
	if err = m.complete(&s, made.Config); err == nil {
		err = p.command(ctx, m.ports())
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	m.counters = crash.Count(b.options.Metrics, &s, crash.Counter{Name: restartsName, Help: "Number of processes of backend libraries that were started again"})
	m.crashes = crash.New(crash.Settings{Signature: m.sig, Log: m.log, Captures: b.options.Crashes})
	m.Keeper = crash.Keep(crash.KeeperSettings[*process]{
		Model: m.name, What: "the process of a backend library", Log: m.log, Start: m.again, Restarting: func() { m.counters.Add(0) },
	}, p)
	return m, nil
}

// describe returns what the child must know of a model.
func (b *backend) describe(ctx context.Context, s *backends.Settings) (d description, err error) {
	name := s.Config.GetBackend()
	library := backends.FindLibrary(backends.Named{Backend: name, ModelDir: s.ModelDir, Dir: s.Dir, Values: b.options.Config})
	if library == "" {
		return d, status.Errorf(status.NotFound, "unable to find backend library for backend '%s' of model '%s': expected '%s' in '%s', '%s' or '%s'",
			name, s.Model, backends.LibraryFile(name), s.Dir, s.ModelDir, filepath.Join(backends.LibraryDirectory(b.options.Config), name))
	}
	var ofLibrary, ofDir, ofConfig, ofSettings error
	d = description{Backend: name, Model: s.Model, Version: s.Version, Complete: !s.Strict}
	d.Library, ofLibrary = filepath.Abs(library)
	d.ModelDir, ofDir = filepath.Abs(s.ModelDir)
	d.Folder = filepath.Dir(d.Library)
	text, ofConfig := config.JSON(s.DeclaredConfig())
	settings, ofSettings := json.Marshal(map[string]any{"cmdline": b.cmdline(name, s.Strict)})
	d.Config, d.Settings = string(text), string(settings)
	if b.options.Log != nil && b.options.Log.Enabled(ctx, slog.LevelDebug) {
		d.Verbose = 1
	}
	return d, errors.Join(ofLibrary, ofDir, ofConfig, ofSettings)
}

// cmdline returns the settings of a library: those that Triton sets, and those of --backend-config=NAME,KEY=VALUE.
func (b *backend) cmdline(name string, strict bool) map[string]string {
	values := map[string]string{
		"auto-complete-config": strconv.FormatBool(!strict), "backend-directory": backends.LibraryDirectory(b.options.Config),
		"min-compute-capability": "6.000000", "default-max-batch-size": "4",
	}
	maps.Copy(values, b.options.Others[name])
	return values
}

// complete sets the signature, from the configuration that the library has set where it has set one.
func (m *model) complete(s *backends.Settings, text string) error {
	cfg := s.DeclaredConfig()
	if text != "" {
		set, err := completed(text)
		if err != nil {
			return status.Prefixf(err, "model '%s', backend library '%s': ", m.name, m.about.Library)
		}
		cfg, m.given, m.about.Config = set, set, text
	}
	sig := config.SignatureOf(config.DeclareSequence(cfg)).AtModel()
	sig.Model, sig.Version = s.Model, s.Version
	sig.Computed, sig.Scattered, sig.OwnBatchIO = nil, nil, true
	m.states = make([]bool, len(sig.Outputs))
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		m.states[i] = slices.ContainsFunc(cfg.GetSequenceBatching().GetState(), func(st *modelconfig.ModelSequenceBatching_State) bool { return st.GetOutputName() == out.Name })
		out.Unbatched = false        // each request has its own response, so nothing is split
		out.Unchecked = !m.states[i] // as in Triton; a state must match, because the server keeps it
	}
	m.sig = sig
	return nil
}

// ports returns the command that names the inputs and outputs.
func (m *model) ports() command {
	c := command{Op: opBind}
	for i := range m.sig.Inputs {
		c.Inputs = append(c.Inputs, m.sig.Inputs[i].Name)
	}
	for i := range m.sig.Outputs {
		if m.states[i] {
			c.States = append(c.States, m.sig.Outputs[i].Name)
		}
		c.Outputs = append(c.Outputs, m.sig.Outputs[i].Name)
	}
	return c
}

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.sig }

// CompletedConfig implements backends.ConfigCompleter.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.given }

// Ready returns why there is no process.
func (m *model) Ready() error {
	if why, _ := m.Down(); why != "" {
		return status.Reasonf(status.InstanceLost, "model '%s': %s", m.name, why)
	}
	return nil
}

// Degraded implements backends.Degrader.
func (m *model) Degraded() (reason string, since time.Time) {
	n := len(m.list())
	var list backends.Outages
	why, since := m.Down()
	for range n {
		list.Add(why, since)
	}
	return list.Text(n)
}

// Report implements backends.Reporter.
func (m *model) Report() string { return m.crashes.Report() }

// list returns the instances by number.
func (m *model) list() (list []*instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(m.instances)) {
		list = append(list, m.instances[i])
	}
	return list
}

// NewInstance makes an instance of no group.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	return m.NewGroupInstance(ctx, at, nil)
}

// kinds are the kinds of instances by their numbers in Triton's API.
var kinds = map[modelconfig.ModelInstanceGroup_Kind]int{
	modelconfig.ModelInstanceGroup_KIND_CPU: 1, modelconfig.ModelInstanceGroup_KIND_AUTO: 1, modelconfig.ModelInstanceGroup_KIND_MODEL: 3,
}

// NewGroupInstance initializes an instance in the process.
func (m *model) NewGroupInstance(ctx context.Context, at tensor.Place, g *modelconfig.ModelInstanceGroup) (backends.Instance, error) {
	kind, ok := kinds[g.GetKind()]
	if !ok || at.Kind == tensor.Device {
		return nil, status.Errorf(status.Unsupported, "model '%s': backend libraries are on the CPU, expected instances of KIND_CPU or KIND_MODEL, found %s", m.name, g.GetKind())
	}
	m.changes.Lock()
	defer m.changes.Unlock()
	x, err := m.add(command{Op: opInstance, Kind: kind, Profiles: slices.Clone(g.GetProfile())}, g.GetName())
	if err != nil {
		return nil, err
	}
	p, alive := m.Now()
	if !alive {
		return x, nil // a start will make it
	}
	err = p.command(ctx, x.spec)
	if err != nil {
		m.remove(x)
		return nil, status.Prefixf(err, "model '%s', instance '%s': ", m.name, x.spec.Name)
	}
	return x, nil
}

// add adds an instance with the least free number.
func (m *model) add(spec command, group string) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.instances[spec.Index] != nil {
		spec.Index++
	}
	if spec.Index >= mostInstance {
		return nil, status.Errorf(status.Unsupported, "model '%s': more instances than the %d that a backend library supports", m.name, mostInstance)
	}
	if group == "" {
		group = m.name + "_0"
	}
	spec.Name = group + "_" + strconv.Itoa(m.named[group])
	m.named[group]++
	x := &instance{m: m, spec: spec}
	m.instances[spec.Index] = x
	return x, nil
}

func (m *model) remove(x *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.instances, x.spec.Index)
}

// restartsName is the name of the metric.
const restartsName = "tutti_backend_library_restarts_total"

// again starts a process with the instances that there are, and publishes it.
func (m *model) again(ctx context.Context, publish func(*process)) error {
	p, _, err := m.start(ctx)
	if err != nil {
		return err
	}
	m.changes.Lock()
	defer m.changes.Unlock()
	err = p.command(ctx, m.ports())
	for _, x := range m.list() {
		if err == nil {
			err = p.command(ctx, x.spec)
		}
	}
	if err != nil {
		p.Close()
		return err
	}
	publish(p)
	return nil
}

// Close ends the process.
func (m *model) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	m.Keeper.Close()
	m.counters.Close()
	return nil
}
