package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/server/overview"
	"github.com/tutti-server/tutti/internal/server/web"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/device"
)

// server is everything that runs while models are served.
type server struct {
	o    options.Options
	logs *logs.Log
	log  *slog.Logger
	repo *repository.Repository
	traces
	// ui and window are nil without a dashboard.
	ui      *web.Server
	window  *overview.Window
	regions *shm.Registry
	alloc   tensor.Allocator
	counted *telemetry.Metrics
	// inFlight counts the bytes of the requests of all front ends.
	inFlight *infer.InFlight
	gpus     io.Closer
	sockets  sockets
	// responses is nil without --cache-config.
	responses cache.Cache
	fronts    []*front
	leaving   atomic.Bool // the server is not ready any more
	stopping  atomic.Bool // new inference requests are refused

	http, grpc, metrics *front // nil when not enabled
}

// open takes the ports and loads the models a command line names. They are served by
// nobody yet.
func open(ctx context.Context, o *options.Options, c *Components, journal *logs.Log) (*server, error) {
	if len(o.Repositories) == 0 {
		return nil, status.Errorf(status.InvalidArg, "--model-repository must be specified")
	}
	ports, err := takePorts(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := openOn(ctx, o, c, journal, ports)
	if err != nil {
		return nil, errors.Join(err, ports.close())
	}
	return s, nil
}

// openOn is open with the ports taken.
func openOn(ctx context.Context, o *options.Options, c *Components, journal *logs.Log, ports sockets) (*server, error) {
	registry, err := c.registry()
	if err != nil {
		return nil, err
	}
	export := o.Metrics.Export
	export.Namespaces = o.Namespacing
	alloc, metrics, log := tensor.NewPool(), telemetry.NewMetricsOf(export), journal.Logger()
	settings, notices := o.BackendConfig.Settings(registry)
	policies, unbound, err := policiesOf(o)
	if err != nil {
		return nil, err
	}
	if o.StrictParameters && len(notices) > 0 {
		return nil, status.Errorf(status.InvalidArg, "%s: %s", notices[0].Option, notices[0].Text)
	}
	notify(ctx, log, slices.Concat(o.Notices, notices, unbound))
	seen, err := openTraces(ctx, o, metrics, log)
	if err != nil {
		return nil, err
	}
	responses := responseCache(&o.Cache, alloc, log) //nolint:contextcheck // its connection outlives the start
	if responses != nil {
		metrics.Cache(responses.Counts)
	}
	gpus := measureGPUs(ctx, export.GPU, metrics, log)
	repo, err := repository.Open(ctx, repository.Settings{
		Roots: o.Repositories, Tolerant: !o.ExitOnError, Mode: modeOf(o), Only: o.Models(), PollInterval: o.PollInterval,
		ConfigName: o.ModelConfigName, LoadThreads: o.LoadThreads, LoadRetries: o.LoadRetries, StrictConfig: o.DisableAutoComplete, StrictEnsembleConfig: o.StrictEnsembleConfig, StrictParams: o.StrictParameters, GPUFallback: o.GPUFallback == options.FallbackCPU,
		Namespacing: o.Namespacing, Cache: o.ModelCache, Limits: limitsOf(&o.Limits), HostPolicies: policies, DelayScheduler: o.DelayScheduler, BacklogDelayScheduler: o.BacklogDelayScheduler,
		Backends: registry, BackendConfig: settings, Alloc: alloc, Responses: responses, Metrics: metrics, Log: log, Tracer: seen.tracer,
		Progress: progressOn(os.Stderr),
	})
	if err != nil {
		return nil, errors.Join(err, seen.close(ctx), closeStore(seen.store), closeCache(responses), gpus.Close())
	}
	s := &server{
		o: *o, logs: journal, log: log, repo: repo, traces: seen, regions: shm.NewRegistry(o.ClientSHM),
		alloc: alloc, counted: metrics, responses: responses, gpus: gpus, sockets: ports, inFlight: infer.NewInFlight(o.Limits.InFlightBytes()),
	}
	metrics.InFlight(s.inFlight)
	for _, text := range repo.EmptyRoots() {
		journal.Logger().WarnContext(ctx, text) //nolint:sloglint // the text names the folder
	}
	if err := s.wire(); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// notify says once what there is to say about options.
func notify(ctx context.Context, logger *slog.Logger, list []options.Notice) {
	for _, n := range list {
		logger.WarnContext(ctx, "about an option", slog.String("option", n.Option), slog.String("notice", n.Text))
	}
}

// limitsOf is what limits are to the repository.
func limitsOf(l *options.Limits) device.Settings {
	return device.Settings{RateLimit: l.RateLimit, Limits: l.Resources, Executions: l.Executions, Threads: l.Threads}
}

// policiesOf reads the host policies, and tells what this machine does not allow.
func policiesOf(o *options.Options) (map[string]*device.Policy, []options.Notice, error) {
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

// modeOf is what --model-control-mode is to the repository.
func modeOf(o *options.Options) repository.Mode {
	switch o.ControlMode {
	case options.ModePoll:
		return repository.Polled
	case options.ModeExplicit:
		return repository.Explicit
	}
	return repository.Fixed
}

// live is what /v2/health/live says. A server whose repository cannot be read is not, as in Triton.
func (s *server) live() bool { return !s.leaving.Load() && s.repo.Err() == nil }

// ready is what /v2/health/ready says.
func (s *server) ready() bool {
	return s.live() && (!s.o.StrictReadiness || s.repo.Ready())
}

// gate answers readiness for the server as a whole.
type gate struct {
	infer.Catalog
	s *server
}

// Ready reports whether requests are welcome.
func (g *gate) Ready() bool { return g.s.ready() }

// start listens and serves.
func (s *server) start() error {
	for _, f := range s.fronts {
		if err := f.listen(); err != nil {
			return err
		}
	}
	for _, f := range s.fronts {
		f.start()
		s.log.Info(fmt.Sprintf("Started %s at %s", f.title, f.address())) //nolint:sloglint // tools look for this line of Triton's
	}
	return nil
}

// started reports whether a service has been started.
func (s *server) started() bool {
	return slices.ContainsFunc(s.fronts, func(f *front) bool { return f.done != nil })
}

// close ends in order within the exit timeout, whether or not ctx is over: health turns first, then requests are
// drained, for which no batch waits any more, then the fronts stop, then the models go.
func (s *server) close(ctx context.Context) error {
	s.leaving.Store(true)
	s.closeDashboard()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.ExitTimeout)
	defer cancel()
	if s.started() {
		s.drain(ctx)
	}
	errs := make([]error, len(s.fronts))
	var wg sync.WaitGroup
	for i, f := range s.fronts {
		wg.Go(func() { errs[i] = f.stop(ctx) })
	}
	wg.Wait()
	err := errors.Join(errors.Join(errs...), s.repo.Close(ctx), s.traces.close(ctx), s.gpus.Close())
	if err == nil { // else requests may still be answered
		err = errors.Join(closeCache(s.responses), closeStore(s.store))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exit timeout of %s expired, requests under way were cut off: %w", s.o.ExitTimeout, err)
	}
	if x, ok := s.alloc.(interface{ InUse() int64 }); ok && err == nil && x.InUse() > 0 {
		s.log.WarnContext(ctx, "tensors were not released", slog.Int64("bytes", x.InUse()))
	}
	return err
}

// fault delivers the first failure of a running front.
func (s *server) fault() <-chan error {
	first := make(chan error, len(s.fronts))
	for _, f := range s.fronts {
		go func() {
			<-f.done
			if f.err != nil {
				first <- fmt.Errorf("%s ended: %w", f.title, f.err)
			}
		}()
	}
	return first
}
