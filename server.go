package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/overview"
	"github.com/tutti-server/tutti/internal/server/web"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Server is a server of model repositories. Its life has four phases:
//
//  1. Open reads the options, binds the ports and loads the models. Clients are refused until Start.
//  2. Start listens on the ports and returns. It may be called once.
//  3. Wait blocks while the server runs. Models, Ready and the addresses may be called at any time, concurrently.
//  4. Close drains requests, stops the services and unloads the models. It must be called once Open has succeeded, also
//     if Start failed. Further calls return the result of the first.
type Server struct {
	o         options.Options
	journal   *logs.Log
	log       *slog.Logger
	alloc     *tensor.Pool
	repo      *repository.Repository
	responses cache.Cache // nil without --cache-config
	gpus      *gpu.Devices
	regions   *shm.Registry
	jobs      *jobs // nil without --jobs
	observation
	services
	lifecycle
}

// observation has the metrics, traces and dashboard of a server.
type observation struct {
	traces

	metrics *telemetry.Metrics
	meter   io.Closer   // of the machine's GPUs
	ui      *web.Server // ui and window are nil without a dashboard
	window  *overview.Window
}

// services are the endpoints of a server.
type services struct {
	sockets              sockets
	endpoints            []*endpoint
	inFlight             *infer.InFlight // inFlight counts the bytes of the requests of all endpoints
	http, grpc, exporter *endpoint       // nil when not enabled
	replayer             *httpapi.Server // executes asynchronous requests; nil without jobs and HTTP
}

// lifecycle is the state of the end of a server.
type lifecycle struct {
	leaving  atomic.Bool // not ready any more
	stopping atomic.Bool // new inference requests are refused
	once     sync.Once
	err      error // the result of the first Close
}

// ModelStatus is the state of one version of a model.
type ModelStatus struct {
	Name    string
	Version string // "-" for a model that could not be loaded
	Err     error  // the reason that the model is unavailable; nil if it is ready
}

// Models returns the ready versions of the models and the models that could not be loaded, sorted by name.
func (s *Server) Models() []ModelStatus {
	failures, ready := map[string]error{}, map[string][]string{}
	for _, e := range s.repo.Index(true) {
		ready[e.Name] = append(ready[e.Name], e.Version)
	}
	for _, f := range s.repo.Failures() {
		failures[f.Model] = f.Err
	}
	var list []ModelStatus
	for _, name := range s.repo.Models() {
		for _, version := range ready[name] {
			list = append(list, ModelStatus{Name: name, Version: version})
		}
		if err, ok := failures[name]; ok {
			list = append(list, ModelStatus{Name: name, Version: "-", Err: err})
		}
	}
	return list
}

// live is the response of /v2/health/live. A server whose repository cannot be read is not live, as in Triton.
func (s *Server) live() bool { return !s.leaving.Load() && s.repo.Err() == nil }

// Ready is the response of /v2/health/ready.
func (s *Server) Ready() bool { return s.live() && (!s.o.StrictReadiness || s.repo.Ready()) }

// Start listens on the ports and serves. It returns once every port accepts connections.
func (s *Server) Start() error {
	for _, e := range s.endpoints {
		if err := e.listen(); err != nil {
			return openError(err)
		}
	}
	for _, e := range s.endpoints {
		e.start()
		s.log.Info(fmt.Sprintf("Started %s at %s", e.title, e.address())) //nolint:sloglint // tools look for this line of Triton's
	}
	s.jobs.start()
	return nil
}

// HTTPAddress returns the address of the HTTP service as HOST:PORT, with the port that the system chose for port 0. It is
// empty if the service is disabled or not started.
func (s *Server) HTTPAddress() string { return s.http.address() }

// GRPCAddress is HTTPAddress of the gRPC service.
func (s *Server) GRPCAddress() string { return s.grpc.address() }

// MetricsAddress is HTTPAddress of the service for metrics, whose path is /metrics.
func (s *Server) MetricsAddress() string { return s.exporter.address() }

// DashboardPath returns the path of the dashboard at HTTPAddress, empty without a dashboard.
func (s *Server) DashboardPath() string {
	if s.ui == nil {
		return ""
	}
	return web.Mount
}

// Wait blocks until ctx is done, and returns nil, or until a service fails, and returns its error. It does not close the
// server.
func (s *Server) Wait(ctx context.Context) error {
	first := make(chan error, len(s.endpoints))
	for _, e := range s.endpoints {
		go func() {
			<-e.done
			if e.err != nil {
				first <- fmt.Errorf("%s ended: %w", e.title, e.err)
			}
		}()
	}
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close stops the server in order: readiness ends, requests are drained, the services stop, the models are unloaded. It
// takes at most --exit-timeout-secs, and then cuts off the remaining requests and returns an error. It ignores the
// cancellation of ctx, which is often the reason to close.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { s.err = errors.Join(s.close(context.WithoutCancel(ctx)), s.journal.Close()) })
	return s.err
}

func (s *Server) close(ctx context.Context) error {
	s.leaving.Store(true)
	if s.ui != nil {
		s.ui.Close()
		s.window.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.ExitTimeout)
	defer cancel()
	worker := s.jobs.leave(ctx)
	if slices.ContainsFunc(s.endpoints, (*endpoint).started) {
		s.log.InfoContext(ctx, "stopping", slog.Duration("timeout", s.o.ExitTimeout))
		s.drain(ctx)
	}
	errs := make([]error, len(s.endpoints))
	var wg sync.WaitGroup
	for i, e := range s.endpoints {
		wg.Go(func() { errs[i] = e.stop(ctx) })
	}
	wg.Wait()
	err := errors.Join(worker, errors.Join(errs...), s.jobs.close(ctx, s.log), s.repo.Close(ctx), s.traces.close(ctx), s.meter.Close())
	if err == nil { // otherwise requests may still use them
		err = errors.Join(s.closeGPUs(ctx), closeCache(s.responses), closeStore(s.store))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exit timeout of %s expired, requests under way were cut off: %w", s.o.ExitTimeout, err)
	}
	if n := s.alloc.InUse(); err == nil && n > 0 {
		s.log.WarnContext(ctx, "tensors were not released", slog.Int64("bytes", n))
	}
	return err
}

// closeGPUs closes the regions of clients and the GPUs. Errors of a GPU that is lost are warnings: the end of the process frees its memory.
func (s *Server) closeGPUs(ctx context.Context) error {
	lost, err := tensor.SplitLost(errors.Join(s.regions.Close(), s.gpus.Close()))
	if lost != nil {
		s.log.WarnContext(ctx, "closing a lost GPU failed", slog.String("error", status.Line(lost.Error())))
	}
	return err
}

// openError adds Triton's text to the error of a failed start.
func openError(err error) error {
	if e, ok := errors.AsType[*startError](err); ok {
		return e
	}
	return fmt.Errorf("creating server: %s - %w", status.CodeOf(err), err)
}

// drainInterval is the time between two checks whether the server may stop.
const drainInterval = 5 * time.Millisecond

// drain ends inference in Triton's order, while all services run:
//
//  1. Connections close: the server is not ready, HTTP responses close their connections, and requests are served as
//     before, but no batch waits for more of them. This phase ends with the last connection, or at its time limit.
//  2. New inference requests are refused, and running ones complete.
//
// It returns early when ctx is done. The services stop afterwards.
func (s *Server) drain(ctx context.Context) {
	d := drainer{log: s.log, left: int(s.o.ExitTimeout / time.Second)}
	s.repo.Flush()
	if s.http != nil {
		limit, cancel := context.WithTimeout(ctx, min(s.o.ExitConnections, s.o.ExitTimeout/2))
		http := s.http.service.(connectionDrainer) //nolint:errcheck,forcetypeassert // see wire
		http.Leave()
		d.wait(limit, http.Connections, "HTTP service connections")
		cancel()
	}
	s.stopping.Store(true)
	s.log.Info("Waiting for in-flight requests to complete.") //nolint:sloglint // tools look for this line of Triton's
	d.wait(ctx, s.repo.Busy, "model versions that have in-flight inferences")
}

// connectionDrainer is a service whose clients keep connections open.
type connectionDrainer interface {
	// Leave makes clients close their connections after their next response. Requests are served as before.
	Leave()
	// Connections returns how many connections are open.
	Connections() int
}

// drainer waits, and logs every second what it waits for.
type drainer struct {
	log  *slog.Logger
	left int // remaining seconds, for the log
}

// wait returns when count is 0, or ctx is done.
func (d *drainer) wait(ctx context.Context, count func() int, what string) {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for logged := (time.Time{}); ; {
		n := count()
		if n == 0 {
			return
		}
		if now := time.Now(); now.Sub(logged) >= time.Second {
			d.log.InfoContext(ctx, fmt.Sprintf("Timeout %d: Found %d %s", d.left, n, what)) //nolint:sloglint // tools look for this line of Triton's
			d.left, logged = max(d.left-1, 0), now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// catalog is the catalog of the repository as the services see it: not ready while the server is not, and refusing new
// requests once the server stops.
type catalog struct {
	infer.Catalog
	s *Server
}

// Ready implements infer.Catalog.
func (c *catalog) Ready() bool { return c.s.Ready() }

// Lost returns why a model cannot serve whose devices are lost; nil if there is none.
func (c *catalog) Lost() error { return c.s.repo.Lost() }

// Describe fails for every model once the server stops: the services call it before they decode a request.
func (c *catalog) Describe(model string, version int64) (*infer.Description, error) {
	d, err := c.Catalog.Describe(model, version)
	if err != nil || !c.s.stopping.Load() {
		return d, err
	}
	err = status.Errorf(status.Unavailable, "%sServer is stopping, scheduler for model has stopped accepting new inference requests", infer.IDPrefix(""))
	if cfg, failed := c.Config(model, version); failed == nil && cfg.GetEnsembleScheduling() != nil {
		err = status.Prefixf(err, "in ensemble '%s', ", model)
	}
	return nil, err // in Triton's words
}

// progressOn returns a function that draws the progress of fetched models, a line per model, if w is a terminal.
// Otherwise it returns nil, and the log has the progress.
func progressOn(w io.Writer) func(model string, done, total int64) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil { //nolint:gosec // file descriptors are small
		return nil
	}
	var mu sync.Mutex
	shown := map[string]int64{}
	return func(model string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		percent := 100 * done / max(1, total)
		if last, ok := shown[model]; ok && percent == last {
			return
		}
		shown[model] = percent
		end := ""
		if done >= total {
			end = "\n"
			delete(shown, model)
		}
		_, _ = fmt.Fprintf(f, "\r\x1b[Kfetching %s: %d%% of %.1f MB%s", model, percent, float64(total)/1e6, end)
	}
}

// Width in characters of the statuses in the table of models: on a terminal, and in a log, where tools search for whole
// sentences.
const (
	terminalWidth = 100
	logWidth      = 500
)

// statusWidth returns the width of statuses in what is written to w.
func statusWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			return terminalWidth
		}
	}
	return logWidth
}

// modelTable returns the table of models that Triton, too, logs after the start.
func modelTable(list []ModelStatus, width int) string {
	rows := [][]string{{"Model", "Version", "Status"}}
	for _, m := range list {
		first, text := []string{m.Name, m.Version}, "READY"
		if m.Err != nil {
			text = "UNAVAILABLE: " + m.Err.Error()
		}
		for _, line := range table.Wrap(text, width) {
			rows, first = append(rows, append(first, line)), []string{"", ""}
		}
	}
	return table.Box(rows)
}
