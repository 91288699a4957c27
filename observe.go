package tutti

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/runtimes/nvml"
	"github.com/tutti-server/tutti/internal/server/history"
	"github.com/tutti-server/tutti/internal/server/overview"
	"github.com/tutti-server/tutti/internal/server/sites"
	"github.com/tutti-server/tutti/internal/server/web"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
	"github.com/tutti-server/tutti/internal/tracing/otlp"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// traces has the recorders of requests and the stores of their records.
type traces struct {
	tracer   *tracing.Tracer
	store    *ring.Store // nil if no traces are stored, spans if none are exported
	spans    *otlp.Exporter
	writer   *otlp.Writer   // of single traces
	captures *capture.Store // nil if capturing is disabled
}

// openTraces opens the recorders that the options enable.
func openTraces(ctx context.Context, o *options.Options, metrics *telemetry.Metrics, log *slog.Logger) (t traces, err error) {
	c := &o.Trace
	list := tracing.Options{Log: log, Params: o.TraceStore.Params, AtMost: o.TraceStore.AtMost, Settings: tracing.Settings{
		Mode: c.Mode, Level: c.Levels, Rate: strconv.Itoa(c.Rate), Count: strconv.Itoa(c.Count),
		LogFrequency: strconv.Itoa(c.LogFrequency), File: c.File,
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ctx), closeStore(t.store))
		}
	}()
	if t.store, err = traceStore(o, metrics); err != nil {
		return t, err
	}
	if t.store != nil {
		list.Sinks, list.All = append(list.Sinks, t.store), true
	}
	if s := &o.Capture; s.Bytes > 0 && (o.Dashboard.Token != "" || o.Access.File != "") && o.Dashboard.Enabled && o.HTTP.Enabled { // both start captures
		t.captures = capture.New(capture.Settings{
			Bytes: s.Bytes, RequestBytes: s.RequestBytes, RedactTensors: s.RedactTensors, RedactModels: s.RedactModels,
		})
		list.Recorder = t.captures
	}
	exports := c.Mode == tracing.ModeOpenTelemetry
	set, err := otlp.ParseSettings(c.OpenTelemetry, os.Getenv)
	switch {
	case err != nil && exports:
		return t, err
	case err != nil:
		set = &otlp.Settings{}
	}
	if exports {
		if t.spans, err = otlp.New(ctx, set, log); err != nil {
			return t, err
		}
		list.Exporter, list.Sinks = set.Shown(), append(list.Sinks, t.spans)
	}
	t.writer = otlp.NewWriter(ctx, set, t.spans)
	t.tracer, err = tracing.New(list)
	return t, err
}

// crashes returns the recorder of requests that end processes, or nil.
func (t *traces) crashes() backends.CrashRecorder {
	if t.captures == nil {
		return nil
	}
	return t.captures
}

// close closes the trace file and exports the remaining spans. It does not close the store: see closeStore.
func (t *traces) close(ctx context.Context) error {
	return errors.Join(t.tracer.Close(), t.spans.Close(ctx))
}

// traceStore returns the store of traces of recent requests, nil if it is disabled or there is no dashboard to show
// them. Exemplars of the latencies of m refer to its traces.
func traceStore(o *options.Options, m *telemetry.Metrics) (*ring.Store, error) {
	if o.TraceStore.Bytes == 0 || !o.Dashboard.Enabled || !o.HTTP.Enabled {
		return nil, nil //nolint:nilnil // there is none
	}
	store, err := ring.New(o.TraceStore.Bytes, inspect.Sampling{Failed: true, Slow: true, Every: uint32(o.TraceStore.Every)}) //nolint:gosec // within its range
	if err == nil {
		store.OnRetained(func(r *tracing.Record, took int64) { m.Exemplar(r.Model, r.Version, r.ID.String(), took) })
	}
	return store, err
}

func closeStore(s *ring.Store) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// dashboard returns the server of /ui/.
func (s *Server) dashboard(policy *sites.Policy) (*web.Server, error) {
	pages, err := web.Pages()
	if err != nil {
		return nil, err
	}
	figures := overview.Settings{
		Name: s.o.ID, Version: Version, Models: s.repo, Ready: s.Ready, GPUs: s.metrics.Measured, TensorBytes: s.alloc.InUse, Degraded: s.guard.last,
	}
	set := web.Settings{Lifecycle: s.repo, Details: s.repo, Examples: s.repo.Examples, Token: s.o.Dashboard.Token, Restricted: s.o.HTTP.Restricted, Guard: s.access, Sites: policy, Pages: pages}
	if s.store != nil {
		figures.Traces, set.Inspector, set.OTLP, set.Links = s.store, s.store, s.writer.JSON, s.o.Dashboard.Links
	}
	if s.captures != nil {
		set.Captures = s.captures
	}
	s.window = overview.New(figures)
	s.past = s.openHistory()
	set.Overview, set.History, set.Executions = s.window, s.past, s.window.Executions
	s.ui = web.New(set)
	return s.ui, nil
}

// openHistory returns the store of the figures of the past.
func (s *Server) openHistory() *history.Store {
	past := history.Settings{Counters: s.repo.Counters, Server: s.window.Server, Log: s.log}
	if s.store != nil {
		past.Quantiles = s.store.QuantilesBetween
	}
	if s.o.Jobs.DataDir != "" {
		past.File = filepath.Join(s.o.Jobs.DataDir, history.FileName(s.o.HTTP.Port))
	}
	return history.New(past)
}

// measureGPUs exports the metrics of the machine's GPUs, if it has any and on is true, until the returned closer is
// closed.
func measureGPUs(ctx context.Context, on bool, metrics *telemetry.Metrics, logger *slog.Logger) io.Closer {
	if !on {
		return io.NopCloser(nil)
	}
	meter, err := nvml.Open(nvml.Name)
	if err != nil {
		logger.DebugContext(ctx, "no GPU is measured", slog.String("reason", err.Error()))
		return io.NopCloser(nil)
	}
	metrics.GPUs(meter.Read)
	return meter
}
