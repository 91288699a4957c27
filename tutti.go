// Package tutti composes a server from its parts: options, backends, steps, the model repository, caches, traces and the
// services for HTTP, gRPC and metrics. The package contains no commands: package cmd adds the command line.
//
// A program with its own steps or backends passes its Components to cmd.Main, or opens a Server itself. Open describes the
// phases of a server. For example:
//
//	c := cmd.Builtin()
//	c.Steps = append(c.Steps, mystep.NewFactory())
//	s, err := tutti.Open(ctx, tutti.Settings{Args: []string{"--model-repository=models"}, Components: c})
package tutti

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/steps"
)

// Version is the version of the server, which its metadata and `tutti version` return.
const Version = "0.1.0"

// Components are the factories that a server is built from. A copy shares the slice of steps.
type Components struct {
	Steps []steps.Factory // the native steps: the values of the parameter "step" of a model with backend "native"
	// Backends returns the backends. Its argument is the registry of Steps, for the backend "native". It is called once
	// for each registry and may be nil.
	Backends func(*steps.Registry) []backends.Factory

	_ struct{}
}

// AddBackends adds backends to those that c.Backends returns.
func (c *Components) AddBackends(list ...backends.Factory) {
	before := c.Backends
	c.Backends = func(r *steps.Registry) (all []backends.Factory) {
		if before != nil {
			all = before(r)
		}
		return append(all, list...)
	}
}

// Registry returns the registry of the backends. It fails if two factories have the same name.
func (c *Components) Registry() (*backends.Registry, error) {
	known, err := steps.NewRegistry(c.Steps...)
	if err != nil || c.Backends == nil {
		return &backends.Registry{}, err
	}
	return backends.NewRegistry(c.Backends(known)...)
}

// Settings are the settings of Open.
type Settings struct {
	Args []string // the options of `tutti serve`. For example: {"--model-repository=models", "--http-port=9000"}.
	// Env holds options as NAME=VALUE, such as TUTTI_HTTP_PORT=9000; usually os.Environ(). Args override it.
	Env        []string
	Components Components // the steps and backends of the server
	// Worker opens a worker instead, as `tutti worker` does: it runs durable jobs with its models, and has no endpoints for
	// inference. Its health is served beside its metrics.
	Worker bool
	// Listeners are sockets that listen already, for example those of systemd, in place of those that the server binds. The server
	// owns them from now on.
	Listeners []Listener
	// Stdout and Stderr receive the log, as --log-file and the log levels say; nil discards it.
	Stdout, Stderr io.Writer

	_ struct{}
}

// OptionError is the error of an option in Settings that is unknown or has an invalid value.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

// Open opens a server: it reads the options, binds the ports and loads the models. It fails with an OptionError for an
// invalid option, with flag.ErrHelp if Args ask for help, and if a model cannot be loaded, unless Args contain
// --exit-on-error=false. The caller must close the server. See Server for its phases.
func Open(ctx context.Context, set Settings) (*Server, error) {
	args := set.Args
	if set.Worker {
		args = append([]string{"--jobs=true"}, args...)
	}
	o, err := options.Parse(args, set.Env)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, &OptionError{err}
	}
	if set.Worker {
		if !o.Jobs.Enabled {
			return nil, &OptionError{errors.New("--jobs=false leaves a worker nothing to do: leave it out")}
		}
		onlyJobs(o)
	}
	if set.Stdout == nil {
		set.Stdout = io.Discard
	}
	if set.Stderr == nil {
		set.Stderr = io.Discard
	}
	journal, err := logs.New(o.Log, set.Stdout, set.Stderr)
	if err != nil {
		return nil, openError(err)
	}
	s, err := open(ctx, o, &set, journal)
	if err != nil {
		return nil, errors.Join(openError(err), journal.Close())
	}
	journal.Block(modelTable(s.Models(), statusWidth(set.Stderr)))
	if o.ExitOnError && len(s.repo.Failures()) > 0 {
		err := openError(status.Errorf(status.Internal, "failed to load all models"))
		return nil, errors.Join(err, s.giveUp(err), s.Close(ctx))
	}
	return s, nil
}

// open binds the ports and loads the models.
func open(ctx context.Context, o *options.Options, set *Settings, journal *logs.Log) (s *Server, err error) {
	if len(o.Repositories) == 0 {
		return nil, status.Errorf(status.InvalidArg, "--model-repository must be specified")
	}
	registry, err := set.Components.Registry()
	if err != nil {
		return nil, err
	}
	s = &Server{o: *o, journal: journal, log: journal.Logger(), alloc: tensor.NewPool(), bound: newMeter(&o.Limits), regions: shm.NewRegistry(o.ClientSHM)}
	if s.bound != nil {
		s.alloc.Admit(s.admit)
	}
	s.inFlight, s.replaced = infer.NewInFlight(o.Limits.InFlightBytes()), make(chan struct{})
	s.shares = o.Limits.Shares()
	s.access, err = identity.Open(ctx, identity.Settings{
		Namespaces: s.namespaces(), File: o.Access.File, RemoteControl: o.Access.RemoteControl, DashboardToken: o.Dashboard.Token, Audit: o.Access.Audit, Stderr: set.Stderr, Log: s.log,
	})
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "%w", err)
	}
	opened := s
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.access.Close())
		}
	}()
	given, err := s.takeOver(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.giveUp(err))
		}
	}()
	if s.sockets, err = takePorts(ctx, &s.o, slices.Concat(given, set.Listeners)...); err != nil {
		return nil, err
	}
	if err = s.load(ctx, registry, set.Stderr); err != nil {
		return nil, errors.Join(err, s.sockets.close())
	}
	if err := s.wire(); err != nil { //nolint:contextcheck // a Temporal server that it starts outlives the start
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)), s.sockets.close())
	}
	return s, nil
}

// namespaces returns a function for the namespaces of models, nil if they have none. It may be called once the repository is open.
func (s *Server) namespaces() func(model string, control bool) []string {
	if !s.o.Namespacing {
		return nil
	}
	return func(model string, control bool) []string { return s.repo.Namespaces(model, control) }
}

// load opens the recorders, the response cache and the repository. If it fails, it closes what it opened.
func (s *Server) load(ctx context.Context, registry *backends.Registry, stderr io.Writer) (err error) {
	o := &s.o
	settings, notices := o.BackendConfig.Settings(registry)
	policies, unbound, err := hostPolicies(o)
	if err != nil {
		return err
	}
	if o.StrictParameters && len(notices) > 0 {
		return status.Errorf(status.InvalidArg, "%s: %s", notices[0].Option, notices[0].Text)
	}
	for _, n := range slices.Concat(o.Notices, notices, unbound) {
		s.log.WarnContext(ctx, "about an option", slog.String("option", n.Option), slog.String("notice", n.Text))
	}
	export := o.Metrics.Export
	export.Namespaces = o.Namespacing
	s.metrics = telemetry.NewMetricsOf(export)
	if s.traces, err = openTraces(ctx, o, s.metrics, s.log); err != nil {
		return err
	}
	s.responses = responseCache(&o.Cache, s.alloc, s.log) //nolint:contextcheck // its connection outlives the start
	if s.responses != nil {
		s.metrics.Cache(s.responses.Counts)
	}
	s.meter = measureGPUs(ctx, export.GPU, s.metrics, s.log)
	noGPU := s.openGPUs(ctx, o)
	if status.CodeOf(noGPU) == status.InvalidArg {
		return errors.Join(noGPU, s.traces.close(ctx), closeStore(s.store), closeCache(s.responses), s.meter.Close())
	}
	pinned := s.gpus.Pinned(s.alloc)
	s.gpus.Watch(s.log)
	s.metrics.Devices(func() (list []telemetry.DeviceUse) {
		for _, u := range s.gpus.Uses() {
			list = append(list, telemetry.DeviceUse{Place: u.Place, Lost: u.Lost, Spilled: u.Spilled})
		}
		return list
	})
	s.regions.SetDevices(s.gpus.Accelerators(), noGPU)
	s.metrics.InFlight(s.inFlight)
	s.metrics.Refusals(s.access.Refusals)
	if s.shares != nil {
		s.metrics.Clients(s.shares.Refusals)
	}
	s.repo, err = repository.Open(ctx, repository.Settings{
		Build: Version, Roots: o.Repositories, Tolerant: !o.ExitOnError, Mode: controlModes[o.ControlMode], Only: o.Models(), PollInterval: o.PollInterval,
		ConfigName: o.ModelConfigName, LoadThreads: o.LoadThreads, LoadRetries: o.LoadRetries,
		StrictConfig: o.DisableAutoComplete, StrictEnsembleConfig: o.StrictEnsembleConfig, StrictParams: o.StrictParameters, QuietNotices: !o.LogNotices,
		GPUFallback: o.GPUFallback == options.FallbackCPU, Namespacing: o.Namespacing, Cache: o.ModelCache,
		Room: s.room(o.GPULoadLimits), EvictIdle: o.ModelMemory == options.MemoryLRU, Accelerators: s.gpus.Accelerators(), NoAccelerator: noGPU, Pinned: pinned,
		Limits:       device.Settings{RateLimit: o.Limits.RateLimit, Limits: o.Limits.Resources, Executions: o.Limits.Executions, Threads: o.Limits.Threads},
		HostPolicies: policies, DelayScheduler: o.DelayScheduler, BacklogDelayScheduler: o.BacklogDelayScheduler,
		Isolate:  o.Isolation == options.IsolationProcess,
		Crashes:  s.crashes(),
		Backends: registry, BackendConfig: settings, Alloc: s.alloc, Responses: s.responses, Metrics: s.metrics, Log: s.log,
		Watchdog: o.Limits.Watchdog, WatchdogFactor: o.Limits.WatchdogFactor, TimeoutPerStep: o.Limits.TimeoutPerStep, Tracer: s.tracer, Progress: progressOn(stderr),
	})
	if err != nil {
		return errors.Join(err, s.traces.close(ctx), closeStore(s.store), closeCache(s.responses), s.meter.Close(), s.gpus.Close())
	}
	s.metrics.Requests(s.repo.Requests)
	if at := s.gpus.Started(); !at.IsZero() {
		s.log.InfoContext(ctx, "models on GPUs are loaded", slog.Duration("since_first_context", time.Since(at)))
	}
	for _, text := range s.repo.EmptyRoots() {
		s.log.WarnContext(ctx, text) //nolint:sloglint // the text names the folder
	}
	return nil
}

// openGPUs opens the GPUs. The error says why none is used; its code is InvalidArg if an option is wrong. A machine without GPUs is usual
// and not logged, unless an option names the driver.
func (s *Server) openGPUs(ctx context.Context, o *options.Options) (err error) {
	set := o.GPU
	set.Limited = slices.Sorted(maps.Keys(o.GPULoadLimits))
	s.gpus, err = gpu.Open(set)
	if err != nil && set.Driver != "" && status.CodeOf(err) != status.InvalidArg {
		s.log.WarnContext(ctx, "no GPU is used", slog.String("option", "--cuda-driver="+set.Driver), slog.String("reason", err.Error()))
	}
	return err
}

// hostPolicies parses the host policies. Its notices name the settings that this machine cannot apply.
func hostPolicies(o *options.Options) (map[string]*device.Policy, []options.Notice, error) {
	policies := map[string]*device.Policy{}
	var list []options.Notice
	for _, name := range slices.Sorted(maps.Keys(o.HostPolicies)) {
		p, err := device.ParsePolicy(name, o.HostPolicies[name])
		if err != nil {
			return nil, nil, err
		}
		policies[name] = p
		for _, key := range p.Unread {
			list = append(list, options.Notice{Option: "--host-policy " + name + "," + key, Text: "accepted without effect: nothing reads this key, expected cpu-cores or numa-node"})
		}
		if err := p.Probe(); err != nil {
			list = append(list, options.Notice{Option: "--host-policy " + name, Text: "not bound: " + err.Error()})
		}
	}
	return policies, list, nil
}

// controlModes are those of --model-control-mode that load or unload models later.
var controlModes = map[string]repository.Mode{options.ModePoll: repository.Polled, options.ModeExplicit: repository.Explicit}

// responseCache returns the cache of --cache-config, nil for none.
func responseCache(o *options.Cache, alloc tensor.Allocator, log *slog.Logger) cache.Cache {
	switch {
	case o.Local > 0:
		return local.New(local.Settings{Size: o.Local, Alloc: alloc, Log: log})
	case o.Redis.Address != "":
		return redis.New(redis.Settings{Config: o.Redis, Alloc: alloc, Log: log})
	}
	return nil
}

// closeCache closes a cache, which may be nil.
func closeCache(c cache.Cache) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// room returns a function that refuses instances at GPUs of which more than a fraction of the memory is in use; nil without
// limits. The use of a GPU is known once a model has used it.
func (s *Server) room(limits map[int]float64) func(at tensor.Place) error {
	if len(limits) == 0 {
		return nil
	}
	return func(at tensor.Place) error {
		limit, ok := limits[int(at.ID)]
		if !ok {
			return nil
		}
		used, total, err := s.gpus.Memory(int(at.ID))
		if err != nil || float64(used) <= limit*float64(total) {
			return err
		}
		return status.Reasonf(status.MemoryLimit, "%d of the %d bytes of %s are in use, more than the fraction %v of --model-load-gpu-limit: unload models, or raise the limit", used, total, at, limit)
	}
}
