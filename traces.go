package tutti

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
	"github.com/tutti-server/tutti/internal/tracing/otlp"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// traces has the recorders of requests and the stores of their records.
type traces struct {
	tracer *tracing.Tracer
	// store is nil if no traces are stored, spans if none are exported.
	store *ring.Store
	spans *otlp.Exporter
	// captures is nil if capturing is disabled.
	captures *capture.Store
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
	if t.captures = captureStore(o); t.captures != nil {
		list.Recorder = t.captures
	}
	if c.Mode == tracing.ModeOpenTelemetry {
		set, err := otlp.ParseSettings(c.OpenTelemetry, os.Getenv)
		if err != nil {
			return t, err
		}
		if t.spans, err = otlp.New(ctx, set, log); err != nil {
			return t, err
		}
		list.Exporter, list.Sinks = set.Shown(), append(list.Sinks, t.spans)
	}
	t.tracer, err = tracing.New(list)
	return t, err
}

// close closes the trace file and exports the remaining spans. It does not close the store: see closeStore.
func (t *traces) close(ctx context.Context) error {
	return errors.Join(t.tracer.Close(), t.spans.Close(ctx))
}
