package otlp

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

const (
	tracerName   = "triton-server" // Triton's instrumentation name
	maxWaiting   = 1 << 10         // bounds the traces and batches that wait for conversion
	closeTimeout = 5 * time.Second // bounds the time in which Close sends the waiting spans
)

// Exporter is a tracing.Sink that sends the sampled traces and, with Settings.Detail, their batches. It never
// blocks a request: Trace copies the record into a queue. A trace that finds the queue full is dropped and counted.
type Exporter struct {
	log      *slog.Logger
	ids      ids
	seed     uint64
	detail   bool  // more spans than Triton's
	epoch    int64 // ns since 1970 at which telemetry.Now was 0
	provider *sdk.TracerProvider
	tracer   trace.Tracer

	mu     sync.RWMutex
	closed bool // guarded by mu
	queue  chan *item
	done   chan struct{}
	pool   pool.Of[item]
	lost   atomic.Int64 // traces and batches
	sent   atomic.Int64 // spans
	made   int64        // spans, counted by run
}

// item is a copied trace or batch.
type item struct {
	rec   tracing.Record
	batch tracing.Batch
	which bool // a batch
}

// New returns an exporter. It does not connect: a collector may come and go.
func New(ctx context.Context, s *Settings, log *slog.Logger) (*Exporter, error) {
	client, err := newClient(ctx, s)
	if err != nil {
		return nil, err
	}
	about := make([]attribute.KeyValue, 0, len(s.Resource))
	for k, v := range s.Resource {
		about = append(about, attribute.String(k, v))
	}
	// The environment is first: later options override it.
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithAttributes(about...))
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "the resource of traces: %w", err)
	}
	e := &Exporter{
		log: log, seed: rand.Uint64() | 1, detail: s.Detail, epoch: telemetry.Epoch(),
		queue: make(chan *item, maxWaiting), done: make(chan struct{}),
	}
	limits := sdk.NewSpanLimits()
	limits.EventCountLimit, limits.LinkCountLimit = -1, -1 // a trace is already bounded
	e.provider = sdk.NewTracerProvider(
		sdk.WithResource(res), sdk.WithIDGenerator(&e.ids), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithRawSpanLimits(limits),
		sdk.WithBatcher(&reporter{SpanExporter: client, log: log, sent: &e.sent},
			sdk.WithMaxQueueSize(s.QueueSize), sdk.WithMaxExportBatchSize(s.BatchSize), sdk.WithBatchTimeout(s.Delay)),
	)
	e.tracer = e.provider.Tracer(tracerName)
	go e.run(context.WithoutCancel(ctx))
	return e, nil
}

// Trace implements tracing.Sink.
func (e *Exporter) Trace(t *tracing.Trace) {
	if !t.Sampled() {
		return
	}
	i := e.pool.Get()
	i.which = false
	t.Record().CopyTo(&i.rec)
	e.put(i)
}

// Batch implements tracing.Sink.
func (e *Exporter) Batch(b *tracing.Batch) {
	if !e.detail || len(b.Links) == 0 {
		return
	}
	i := e.pool.Get()
	i.which, i.batch = true, *b
	e.put(i)
}

func (e *Exporter) put(i *item) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return
	}
	select {
	case e.queue <- i:
	default:
		e.pool.Put(i)
		if e.lost.Add(1) == 1 {
			e.log.Warn("traces come faster than they can be exported")
		}
	}
}

func (e *Exporter) run(ctx context.Context) {
	defer close(e.done)
	for i := range e.queue {
		if e.spans(ctx, i) != nil {
			continue // it may be half read
		}
		i.batch.Links = nil
		e.pool.Put(i)
	}
}

// spans makes the spans of one item. A panic is logged and loses these spans only.
func (e *Exporter) spans(ctx context.Context, i *item) (err error) {
	defer recovery.Error(&err, e.log, "exporting a trace")
	if i.which {
		e.batch(ctx, &i.batch)
	} else {
		e.request(ctx, &i.rec)
	}
	return nil
}

// Close sends the waiting spans, for at most closeTimeout, even if ctx is done. Traces that end later are lost.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.mu.Unlock()
	<-e.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := e.provider.Shutdown(ctx)
	if traces, spans := e.lost.Load(), e.made-e.sent.Load(); traces > 0 || spans > 0 {
		e.log.WarnContext(ctx, "not everything was exported", slog.Int64("traces", traces), slog.Int64("spans", spans))
	}
	if err != nil {
		return status.Errorf(status.Unavailable, "not all traces were exported: %w", err)
	}
	return nil
}

// Lost returns the number of traces and batches that were dropped because the queue was full.
func (e *Exporter) Lost() int64 { return e.lost.Load() }

// newClient returns the exporter of the SDK for the protocol. It does not connect.
func newClient(ctx context.Context, s *Settings) (sdk.SpanExporter, error) {
	var c sdk.SpanExporter
	var err error
	if s.Protocol == ProtocolGRPC {
		c, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(s.URL))
	} else {
		c, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.URL))
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "traces cannot be sent to '%s' by %s: %w", s.URL, s.Protocol, err)
	}
	return c, nil
}

// reporter is a SpanExporter that logs lost spans: the first failure after a success.
type reporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
	sent   *atomic.Int64
}

// ExportSpans implements sdk.SpanExporter. It logs failures itself and never returns one.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		r.sent.Add(int64(len(spans)))
		r.failed.Store(false)
		return nil
	}
	if !r.failed.Swap(true) {
		r.log.LogAttrs(ctx, slog.LevelError, "spans are lost", slog.Int("spans", len(spans)), slog.String("error", err.Error()))
	}
	return nil
}
