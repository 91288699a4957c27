// Package otlp exports traces over the OpenTelemetry protocol, as the spans, events and
// attributes of Triton's "opentelemetry" trace mode. The spans are those of the
// OpenTelemetry SDK, which also puts them into portions and sends them.
//
//   - exporter.go: Settings, read from what follows "opentelemetry," in --trace-config; Exporter, a tracing.Sink
//     with a queue and one goroutine behind it, and its client
//   - json.go: Writer, a single trace as JSON
//   - spans.go: a request, an executed batch and the reports of models as spans
//
// A request is these spans:
//
//	InferRequest          the whole request, below the client's span if it named one
//	  <model>             from its submission to its end
//	    <model>           a step of an ensemble
//	      <name>          what the model reports as NAME_START and NAME_END
//	      compute         what an instance did
//
// A plain model's request is its own step. The request of a model that calls another one
// has no InferRequest: the called model's span is below the calling one's.
//
// Settings.Detail adds InferRequest to such calls, attributes, events for copies, cache
// hits and refusals, and these spans:
//
//	queue                 in the model's queue
//	batch                 the end of that: held back for others to join
//	compute               linked to the batch
//	  input               bringing the inputs together
//	  infer               the model
//	  output              handing the outputs on
//
// A batch is then a trace of its own, with one span of that name that links to the requests it was executed for.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	res, err := newResource(ctx, s)
	if err != nil {
		return nil, err
	}
	e := &Exporter{
		log: log, seed: rand.Uint64() | 1, detail: s.Detail, epoch: telemetry.Epoch(),
		queue: make(chan *item, maxWaiting), done: make(chan struct{}),
	}
	e.provider = sdk.NewTracerProvider(append(e.options(res), sdk.WithBatcher(&reporter{SpanExporter: client, log: log, sent: &e.sent},
		sdk.WithMaxQueueSize(s.QueueSize), sdk.WithMaxExportBatchSize(s.BatchSize), sdk.WithBatchTimeout(s.Delay)))...)
	e.tracer = e.provider.Tracer(tracerName)
	go e.run(context.WithoutCancel(ctx))
	return e, nil
}

// options returns what every provider of this package has: all spans, whole, with the ids that e sets.
func (e *Exporter) options(res *resource.Resource) []sdk.TracerProviderOption {
	limits := sdk.NewSpanLimits()
	limits.EventCountLimit, limits.LinkCountLimit = -1, -1 // a trace is already bounded
	return []sdk.TracerProviderOption{
		sdk.WithResource(res), sdk.WithIDGenerator(&e.ids), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithRawSpanLimits(limits),
	}
}

// about returns the attributes of the resource.
func (s *Settings) about() []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, len(s.Resource))
	for k, v := range s.Resource {
		list = append(list, attribute.String(k, v))
	}
	return list
}

// newResource returns the description of the server that its spans carry.
func newResource(ctx context.Context, s *Settings) (*resource.Resource, error) {
	// The environment is first: later options override it.
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithAttributes(s.about()...))
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "the resource of traces: %w", err)
	}
	return res, nil
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

// The protocols that spans leave by, with the names that OpenTelemetry has for them.
const (
	ProtocolHTTP = "http/protobuf"
	ProtocolGRPC = "grpc"
)

// What holds when nothing else is given. The port and path are those that collectors listen at.
const (
	defaultHTTP    = "http://localhost:4318/v1/traces"
	defaultGRPC    = "http://localhost:4317"
	defaultService = "triton-inference-server"
	defaultQueue   = 2048
	defaultDelay   = 5 * time.Second
	defaultBatch   = 512

	serviceName = "service.name"
	maxNumber   = 1 << 30
)

// Settings configure an Exporter. See ParseSettings.
type Settings struct {
	// URL is the collector's endpoint, Protocol one of the Protocol constants.
	URL, Protocol string
	Resource      map[string]string // describes the server; it has a service.name
	// QueueSize bounds the waiting spans, Delay how long they wait, and BatchSize how many are sent together.
	QueueSize, BatchSize int
	Delay                time.Duration
	Detail               bool // adds spans, events and attributes that Triton does not send
}

// ParseSettings parses the pairs that follow "opentelemetry," in --trace-config, in order: url, protocol, resource
// (as key=value, repeated), bsp_max_queue_size, bsp_schedule_delay (milliseconds), bsp_max_export_batch_size and
// detail. Missing values come from the environment, for example OTEL_BSP_SCHEDULE_DELAY and OTEL_SERVICE_NAME.
func ParseSettings(pairs [][2]string, getenv func(string) string) (*Settings, error) {
	s := &Settings{Protocol: ProtocolHTTP, Resource: map[string]string{serviceName: defaultService}}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		s.Resource[serviceName] = name
	}
	numbers := map[string]int{}
	for _, p := range pairs {
		if err := s.set(p[0], p[1], numbers); err != nil {
			return nil, err
		}
	}
	if s.URL == "" {
		s.URL = map[string]string{ProtocolHTTP: defaultHTTP, ProtocolGRPC: defaultGRPC}[s.Protocol]
	}
	return s, s.number(numbers, getenv)
}

func (s *Settings) set(key, value string, numbers map[string]int) error {
	switch key {
	case "url":
		s.URL = value
		if !strings.Contains(value, "://") {
			s.URL = "http://" + value
		}
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return invalid(key, value, "http://HOST:PORT/PATH or https://HOST:PORT/PATH")
		}
	case "protocol":
		if value != ProtocolHTTP && value != ProtocolGRPC {
			return invalid(key, value, ProtocolHTTP+" or "+ProtocolGRPC)
		}
		s.Protocol = value
	case "resource":
		k, v, ok := strings.Cut(value, "=")
		if !ok || k == "" {
			return invalid(key, value, "KEY=VALUE")
		}
		s.Resource[k] = v
	case "detail":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return invalid(key, value, "true or false")
		}
		s.Detail = on
	case "bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size":
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 || n > maxNumber {
			return invalid(key, value, fmt.Sprintf("a number from 1 to %d", maxNumber))
		}
		numbers[key] = n
	default:
		return status.Errorf(status.InvalidArg, "unknown setting 'opentelemetry,%s' of --trace-config, expected one of: "+
			"url, protocol, resource, bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size, detail", key)
	}
	return nil
}

// number sets the numeric settings from the given values, the environment or the defaults.
func (s *Settings) number(given map[string]int, getenv func(string) string) error {
	of := func(key, env string, otherwise int) int {
		if n := given[key]; n > 0 {
			return n
		}
		if n, err := strconv.Atoi(getenv(env)); err == nil && n > 0 && n <= maxNumber {
			return n
		}
		return otherwise
	}
	s.QueueSize = of("bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE", defaultQueue)
	s.Delay = time.Duration(of("bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY", int(defaultDelay/time.Millisecond))) * time.Millisecond
	s.BatchSize = of("bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(defaultBatch, s.QueueSize))
	if s.BatchSize > s.QueueSize {
		return status.Errorf(status.InvalidArg, "--trace-config opentelemetry,bsp_max_export_batch_size is %d, expected at most bsp_max_queue_size, which is %d", s.BatchSize, s.QueueSize)
	}
	return nil
}

func invalid(key, value, expected string) error {
	return status.Errorf(status.InvalidArg, "--trace-config opentelemetry,%s is '%s', expected %s", key, value, expected)
}

// Shown returns the settings in the form that clients read.
func (s *Settings) Shown() *tracing.Exporter {
	var resource []string
	for _, k := range slices.Sorted(maps.Keys(s.Resource)) {
		resource = append(resource, k+"="+s.Resource[k])
	}
	shown := s.URL
	if u, err := url.Parse(s.URL); err == nil {
		shown = u.Redacted()
	}
	return &tracing.Exporter{
		URL: shown, Protocol: s.Protocol, Resource: strings.Join(resource, ","),
		QueueSize: strconv.Itoa(s.QueueSize), ScheduleDelay: strconv.FormatInt(s.Delay.Milliseconds(), 10), BatchSize: strconv.Itoa(s.BatchSize),
		Detail: strconv.FormatBool(s.Detail),
	}
}
