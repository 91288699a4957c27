package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"tutti/core/infer"
	"tutti/core/logs"
	"tutti/core/status"
	"tutti/core/telemetry"
	"tutti/core/tensor"
	"tutti/repository"
	"tutti/server/grpcapi"
	"tutti/server/httpapi"
)

// server is everything that runs while models are served.
type server struct {
	o       Options
	logs    *logs.Log
	log     *slog.Logger
	repo    *repository.Repository
	fronts  []*front
	leaving atomic.Bool

	http, grpc, metrics *front // nil when not enabled
}

// extensions of the protocol that are served.
func extensions() []string {
	return []string{"model_configuration", "binary_tensor_data", "parameters", "statistics"}
}

// open loads the models a command line names. They are served by nobody yet.
func open(ctx context.Context, o *Options, c *Components, log *logs.Log) (*server, error) {
	if len(o.Repositories) == 0 {
		return nil, status.Errorf(status.InvalidArg, "--model-repository must be specified")
	}
	registry, err := c.registry()
	if err != nil {
		return nil, err
	}
	alloc, metrics := tensor.NewPool(), telemetry.NewMetrics()
	settings, notices := backendSettings(registry, o.BackendConfig)
	for _, n := range slices.Concat(o.Notices, notices) {
		log.Logger().WarnContext(ctx, "about an option", slog.String("option", n.Option), slog.String("notice", n.Text))
	}
	repo, err := repository.Open(ctx, repository.Settings{
		Roots: o.Repositories, Only: o.Models(), Backends: registry, BackendConfig: settings,
		Alloc: alloc, Metrics: metrics, Log: log.Logger(),
	})
	if err != nil {
		return nil, err
	}
	s := &server{o: *o, logs: log, log: log.Logger(), repo: repo}
	s.wire(alloc, metrics)
	return s, nil
}

// wire makes the services that the options enable.
func (s *server) wire(alloc tensor.Allocator, metrics *telemetry.Metrics) {
	catalog := &gate{Catalog: s.repo, s: s}
	if s.o.GRPC.Enabled {
		s.grpc = &front{title: "GRPCInferenceService", endpoint: s.o.GRPC.Endpoint, service: grpcapi.New(grpcapi.Settings{
			Infer: s.repo, Catalog: catalog, Alloc: alloc, Live: s.live,
			Name: s.o.ID, Version: Version, Extensions: extensions(),
		})}
		s.fronts = append(s.fronts, s.grpc)
	}
	if s.o.HTTP.Enabled {
		s.http = &front{title: "HTTPService", endpoint: s.o.HTTP.Endpoint, service: httpapi.New(httpapi.Settings{
			Infer: s.repo, Catalog: catalog, Alloc: alloc, Log: s.log, Live: s.live,
			Name: s.o.ID, Version: Version, Extensions: extensions(), MaxInput: s.o.HTTP.MaxInput,
		})}
		s.fronts = append(s.fronts, s.http)
	}
	if s.o.Metrics.Enabled {
		s.metrics = &front{title: "Metrics Service", endpoint: s.o.Metrics, service: newExporter(metrics)}
		s.fronts = append(s.fronts, s.metrics)
	}
}

func (s *server) live() bool { return !s.leaving.Load() }

// gate answers readiness for the server as a whole.
type gate struct {
	infer.Catalog
	s *server
}

// Ready reports whether requests are welcome.
func (g *gate) Ready() bool {
	return g.s.live() && (!g.s.o.StrictReadiness || g.Catalog.Ready())
}

// start opens the sockets and serves.
func (s *server) start(ctx context.Context) error {
	for _, f := range s.fronts {
		if err := f.listen(ctx); err != nil {
			return status.Errorf(status.Unavailable, "unable to start %s: %w", f.title, err)
		}
	}
	for _, f := range s.fronts {
		f.start()
		s.log.Info(fmt.Sprintf("Started %s at %s", f.title, f.address())) //nolint:sloglint // tools look for this line of Triton's
	}
	return nil
}

// close ends in order within the exit timeout, whether or not ctx is over: health turns first, then the fronts
// stop accepting and finish their requests, then the models go.
func (s *server) close(ctx context.Context) error {
	s.leaving.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.ExitTimeout)
	defer cancel()
	errs := make([]error, len(s.fronts))
	var wg sync.WaitGroup
	for i, f := range s.fronts {
		wg.Go(func() { errs[i] = f.stop(ctx) })
	}
	wg.Wait()
	err := errors.Join(errors.Join(errs...), s.repo.Close(ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exit timeout of %s expired, requests under way were cut off: %w", s.o.ExitTimeout, err)
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
