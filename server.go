package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/memory"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/server/history"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/loads"
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
//  4. Close drains requests, stops the services and unloads the models, in the phases of its comment. It must be called once
//     Open has succeeded, also if Start failed. Further calls return the result of the first.
type Server struct {
	o         options.Options
	journal   *logs.Log
	log       *slog.Logger
	alloc     *tensor.Pool
	bound     *memory.Meter // of the memory; nil if the options switch it off
	repo      *repository.Repository
	responses cache.Cache // nil without --cache-config
	gpus      *gpu.Devices
	regions   *shm.Registry
	access    *identity.Guard
	jobs      *jobs // nil without --jobs
	observation
	services
	lifecycle
	succession

	guard guard
}

// observation has the metrics, traces and dashboard of a server.
type observation struct {
	traces

	metrics *telemetry.Metrics
	meter   io.Closer   // of the machine's GPUs
	ui      *web.Server // ui, window and past are nil without a dashboard
	window  *overview.Window
	past    *history.Store
}

// services are the endpoints of a server.
type services struct {
	sockets              sockets
	endpoints            []*endpoint
	inFlight             *infer.InFlight // inFlight counts the bytes of the requests of all endpoints
	calls                loads.Meter     // calls counts the calls of all endpoints
	shares               *infer.Shares   // shares tells clients apart; nil does not
	http, grpc, exporter *endpoint       // nil when not enabled
	replayer             *httpapi.Server // executes asynchronous requests; nil without jobs and HTTP
}

// lifecycle is the state of the end of a server. Each flag is set once, in this order.
type lifecycle struct {
	draining atomic.Bool // not ready any more
	leaving  atomic.Bool // not live any more: clients are sent away
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

// Live is the response of /v2/health/live.
func (s *Server) Live() bool { return s.live() }

// live is the response of /v2/health/live. A server whose repository cannot be read is not live, as in Triton.
func (s *Server) live() bool { return !s.leaving.Load() && s.repo.Err() == nil }

// Ready is the response of /v2/health/ready.
func (s *Server) Ready() bool {
	return !s.draining.Load() && s.live() && (!s.o.StrictReadiness || s.inFlight.Blocked() == nil && s.repo.Ready())
}

// Start listens on the ports and serves. It returns once every port accepts connections.
func (s *Server) Start() error {
	if err := s.ready(); err != nil {
		return errors.Join(openError(err), s.giveUp(err))
	}
	for _, e := range s.endpoints {
		if err := e.listen(); err != nil {
			return openError(err)
		}
	}
	for _, e := range s.endpoints {
		e.start()
		s.log.Info(fmt.Sprintf("Started %s at %s", e.title, e.address())) //nolint:sloglint // tools look for this line of Triton's
	}
	if at := s.dashboardURL(); at != "" {
		s.log.Info("Dashboard at " + at) //nolint:sloglint // a line as those of the services
	}
	s.jobs.start()
	s.watch()
	s.succeed()
	return nil
}

// dashboardURL returns the dashboard's address on this machine, empty without a dashboard.
func (s *Server) dashboardURL() string {
	host, port, err := net.SplitHostPort(s.HTTPAddress())
	if s.DashboardPath() == "" || err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if s.o.HTTP.TLS.Enabled {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + s.DashboardPath()
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

// Wait blocks until ctx is done or another process has replaced this server, and returns nil, or until a service fails, and returns its error. It does not close the
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
	case <-s.replaced:
		return nil
	}
}

// openError adds Triton's text to the error of a failed start.
func openError(err error) error {
	if e, ok := errors.AsType[*startError](err); ok {
		return e
	}
	return fmt.Errorf("creating server: %s - %w", status.CodeOf(err), err)
}

// catalog is the catalog of the repository as the services see it: not ready while the server is not, and refusing new
// requests once the server stops.
type catalog struct {
	infer.Lister
	s *Server
}

// Ready implements infer.Catalog.
func (c *catalog) Ready() bool { return c.s.Ready() }

// Degraded returns what does not work as configured.
func (c *catalog) Degraded() []infer.Degradation { return c.s.Degraded() }

// Routes implements infer.RouteCatalog.
func (c *catalog) Routes(model string, version int64) (*infer.Routes, error) {
	return c.s.repo.Routes(model, version)
}

// Lost returns why a model cannot serve whose devices are lost; nil if there is none.
func (c *catalog) Lost() error { return c.s.repo.Lost() }

// Describe fails for every model once the server stops: the services call it before they decode a request.
func (c *catalog) Describe(model string, version int64) (*infer.Description, error) {
	d, err := c.Lister.Describe(model, version)
	if err != nil || !c.s.stopping.Load() {
		return d, err
	}
	err = &status.Error{
		Code: status.Unavailable, Reason: status.Draining, RetryAfter: infer.LeavingRetry,
		Msg: infer.IDPrefix("") + "Server is stopping, scheduler for model has stopped accepting new inference requests",
	}
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
