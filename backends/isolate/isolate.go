// Package isolate runs the instances of native backends in child processes, so that a crash in native code ends one process and not the
// server. A model asks for it by a parameter, and the server by --isolation=process:
//
//	parameters { key: "isolation" value { string_value: "process" } }
//
//	isolate.go   the factories around those of the backends, models and the parameter
//	instance.go  an instance: executions, crashes, restarts
//	process.go   a child process: its start, its end, its memory
//	wire.go      how a batch is described in shared memory; wake-ups
//	child.go     the child's side
//
// # Processes
//
// Every instance has a process, in a process group of its own. It is this program, started in a mode that is no command (see Hidden and
// Serve), and hosts the backend, the model and one instance. It loads the library, so a crash while loading is an error of the load.
// The kernel kills it when the server exits (PR_SET_PDEATHSIG, of a thread that stays while the process lives), and it exits when its
// socket is closed.
//
// # Memory
//
// The first isolated model moves the server's tensors into shared memory (tensor.Pool.Share). The child maps all of it for reading and a
// range of its own for writing. Inputs are read where they are; outputs that the backend allocates lie in the child's range and become
// tensors there. What lies elsewhere is copied once: inputs in memory from before, outputs in memory of a runtime. A tensor in the range of a
// process outlives it.
//
// A batch is described at the start of the child's range. Two counters there, on which both sides wait by futex, start and end an execution.
// Everything else goes over a socket, as values of encoding/gob: one description of the model, and the response to it.
//
// # Crashes
//
// When a process ends or is stopped, the batch that it executes fails as unavailable, to be retried; the scheduler executes the requests
// of a larger batch again one by one, so that only the one at fault fails. A new process starts at once, and with a growing delay if it
// ends again before a batch succeeds. Meanwhile the instance takes no batch, so that other instances of the model serve.
package isolate

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/subprocess"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	// Param is the parameter of config.pbtxt that isolates a model.
	Param = "isolation"
	// Process is the value for a process for each instance.
	Process = "process"
	// None is the value for instances in the server.
	None = "none"
)

// Around returns factories whose models may be isolated. The program must call Serve with the given factories when Hidden says so.
func Around(list ...backends.Factory) []backends.Factory {
	out := slices.Clone(list)
	for i := range out {
		f, inner := &out[i], list[i]
		if f.Params != nil {
			f.Params = append(slices.Clone(f.Params), Param)
		}
		f.Guide.Params = append(slices.Clone(f.Guide.Params), backends.Param{
			Key: Param, Doc: "`process` runs each instance in a process of its own, `none` in the server: see [reliability.md](reliability.md#isolation)",
		})
		f.New = func(o backends.Options) (backends.Backend, error) {
			b := &backend{factory: inner, options: o}
			if o.Isolate {
				return b, nil
			}
			_, err := b.open()
			if err != nil {
				return nil, err
			}
			return b, nil
		}
	}
	return out
}

// backend loads models in this process or in processes of their own.
type backend struct {
	factory backends.Factory
	options backends.Options

	mu     sync.Mutex
	inner  backends.Backend // of models that are not isolated; guarded by mu
	closed bool             // guarded by mu

	memory subprocess.Memory
}

var (
	_ backends.Describer = (*backend)(nil)
	_ backends.Checker   = (*backend)(nil)
)

// open opens the backend in this process.
func (b *backend) open() (backends.Backend, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inner != nil {
		return b.inner, nil
	}
	var err error
	b.inner, err = b.factory.New(b.options)
	return b.inner, err
}

// Describe implements backends.Describer.
func (b *backend) Describe() string {
	inner, err := b.open()
	if err != nil {
		return err.Error()
	}
	if d, ok := inner.(backends.Describer); ok {
		return d.Describe()
	}
	return ""
}

// Check implements backends.Checker.
func (b *backend) Check() error {
	inner, err := b.open()
	if err != nil {
		return err
	}
	if c, ok := inner.(backends.Checker); ok {
		return c.Check()
	}
	return nil
}

// Close closes the backend in this process.
func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inner == nil || b.closed {
		return nil
	}
	b.closed = true
	return b.inner.Close()
}

// Load loads a model where its configuration says.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	isolated, err := wanted(&s, b.options.Isolate)
	if err != nil {
		return nil, err
	}
	if !isolated {
		inner, err := b.open()
		if err != nil {
			return nil, err
		}
		return inner.Load(ctx, s)
	}
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	if err := onHost(s.Model, s.Config); err != nil {
		return nil, err
	}
	return b.load(ctx, &s)
}

// wanted reports whether the model is to be isolated.
func wanted(s *backends.Settings, byDefault bool) (bool, error) {
	switch v := s.Param(Param); v {
	case "":
		return byDefault, nil
	case Process:
		return true, nil
	case None:
		return false, nil
	default:
		return false, status.Errorf(status.InvalidArg, "model '%s': unexpected value '%s' of parameter '%s': expected '%s' or '%s'", s.Model, v, Param, Process, None)
	}
}

// onHost refuses instances on GPUs.
func onHost(model string, cfg *modelconfig.ModelConfig) error {
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU {
			return status.Errorf(status.Unsupported, "model '%s': parameter '%s' or option '--isolation' is '%s', which instances of KIND_GPU do not support: "+
				"use KIND_CPU, or set the parameter '%s' to '%s'", model, Param, Process, Param, None)
		}
	}
	return nil
}

// load starts the process of the first instance, which describes the model.
func (b *backend) load(ctx context.Context, s *backends.Settings) (*model, error) {
	shared, staging, err := b.memory.For(s.Alloc)
	if err != nil {
		return nil, status.Reasonf(status.MemoryLimit, "no memory for isolated models: %w", err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	about, err := describe(b, s)
	if err != nil {
		return nil, err
	}
	m := &model{name: s.Model, about: about, shared: shared, staging: staging, log: s.Log, counters: crash.Count(b.options.Metrics, s, counters()...)}
	first, made, err := m.start(ctx)
	if err != nil {
		return nil, err
	}
	if m.sig, err = made.signature(); err != nil {
		first.Close()
		return nil, err
	}
	m.threads, m.precision, m.spare = made.Threads, made.Precision, first
	m.crashes = crash.New(crash.Settings{Signature: m.sig, Log: m.log, Captures: b.options.Crashes, Repeated: func() { m.counters.Add(countRepeated) }})
	return m, nil
}

// Counters of a model.
const (
	countRestarts = iota
	countRepeated
)

func counters() []crash.Counter {
	return []crash.Counter{
		{Name: "tutti_isolated_restarts_total", Help: "Number of processes of isolated instances that were started again"},
		{Name: "tutti_isolated_repeated_crashes_total", Help: "Number of times that a request has ended a process of an isolated instance again"},
	}
}

// model is a loaded model whose instances are processes.
type model struct {
	name     string
	about    *description
	shared   *tensor.SharedMemory
	staging  *tensor.Pool
	log      *slog.Logger
	counters *crash.Counters
	sig      *config.Signature
	threads  int
	crashes  *crash.Requests

	precision string

	mu     sync.Mutex
	spare  *process    // started by Load, for the first instance; guarded by mu
	live   []*instance // guarded by mu
	closed bool        // guarded by mu
}

var (
	_ backends.ThreadedModel    = (*model)(nil)
	_ backends.PreciseModel     = (*model)(nil)
	_ backends.ReadinessChecker = (*model)(nil)
	_ backends.Reporter         = (*model)(nil)
	_ backends.Degrader         = (*model)(nil)
)

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.sig }

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// Precision implements backends.PreciseModel.
func (m *model) Precision() string { return m.precision }

// Ready returns why no instance has a process.
func (m *model) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	why := ""
	for _, x := range m.live {
		if why, _ = x.Down(); why == "" {
			return nil
		}
	}
	if why == "" {
		return nil
	}
	return status.Reasonf(status.InstanceLost, "model '%s': %s", m.name, why)
}

// Degraded implements backends.Degrader.
func (m *model) Degraded() (reason string, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list backends.Outages
	for _, x := range m.live {
		list.Add(x.Down())
	}
	return list.Text(len(m.live))
}

// Report implements backends.Reporter.
func (m *model) Report() string { return m.crashes.Report() }

// NewInstance starts a process, or takes the one that Load has started.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind == tensor.Device {
		return nil, status.Errorf(status.Unsupported, "model '%s': an isolated instance on %s is not supported, expected the host", m.name, at)
	}
	m.mu.Lock()
	p := m.spare
	m.spare = nil
	m.mu.Unlock()
	if p == nil {
		var err error
		if p, _, err = m.start(ctx); err != nil {
			return nil, err
		}
	}
	x := newInstance(m, p)
	m.mu.Lock()
	m.live = append(m.live, x)
	m.mu.Unlock()
	return x, nil
}

// Close ends the process that no instance has taken.
func (m *model) Close() error {
	m.mu.Lock()
	p, closed := m.spare, m.closed
	m.spare, m.closed = nil, true
	m.mu.Unlock()
	if p != nil {
		p.Close()
	}
	if !closed {
		m.counters.Close()
	}
	return nil
}
