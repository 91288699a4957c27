// Package tracing decides which requests are traced, records them and passes the records to sinks. One sink is the
// trace file, with the settings, the sampling and the format of Triton's "triton" trace mode.
//
// - tracer.go: Tracer, its start-up values and the settings in force
// - settings.go: settings as they are on the wire, changing them, the sampling of a setting, limits of other traces
// - trace.go, record.go: Trace and its Record, the data of one request; Sink and Recorder, which receive it
// - origin.go: the caller's trace context, and times measured before a request is sampled
// - file.go: the trace file
// - split.go: a request's time by part
//
// In the "opentelemetry" mode there is no file: a sink exports the sampled requests. Tensors are written to trace
// files only.
package tracing

import (
	"cmp"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// The trace modes: a trace file, or spans that a sink exports.
const (
	ModeTriton        = "triton"
	ModeOpenTelemetry = "opentelemetry"
)

// Settings are the settings of a scope as they are on the wire.
type Settings struct {
	Mode  string
	Level []string // OFF alone, or the traced levels, for example TIMESTAMPS
	// Rate: one in so many requests is traced. Count: how many more are traced, -1 for no limit. LogFrequency: how
	// many traces an indexed file holds, 0 for all traces in one file.
	Rate, Count, LogFrequency string
	File                      string
	Exporter                  *Exporter // configures the export of spans in ModeOpenTelemetry, nil in the other mode
}

// Exporter is the configuration of the span exporter, as the user wrote it.
type Exporter struct {
	URL      string `json:"url"`
	Protocol string `json:"protocol"`
	Resource string `json:"resource"`
	// QueueSize bounds the waiting spans, ScheduleDelay how long they wait in milliseconds, and BatchSize how many
	// are sent together.
	QueueSize     string `json:"bsp_max_queue_size"`
	ScheduleDelay string `json:"bsp_schedule_delay"`
	BatchSize     string `json:"bsp_max_export_batch_size"`
	Detail        string `json:"detail"` // "true" when more spans are sent than by Triton
}

// Options are the settings at the start. An empty value means Triton's default: no level, rate 1000, count -1, log
// frequency 0 and no file.
type Options struct {
	Settings
	// Sinks receive every trace and batch. With All, every request is traced for them, also those that the settings do
	// not sample. AtMost limits such requests per second, 0 for no limit; of the others only failures are recorded.
	Sinks  []Sink
	All    bool
	AtMost int
	// Recorder selects requests whose tensors are captured. Optional.
	Recorder Recorder
	Params   []string // the names of the request parameters that traces record
	// Log receives errors of the trace file. Optional.
	Log *slog.Logger
}

// Tracer holds the settings of the server and of its models. A nil Tracer traces nothing. It is safe for concurrent
// use.
type Tracer struct {
	mode     string
	export   *Exporter
	initial  values
	file     *file
	log      *slog.Logger
	sinks    []Sink
	recorder Recorder
	all      atomic.Bool
	quota    quota
	retain   allowance
	params   []string
	epoch    int64 // ns since 1970 at which telemetry.Now was 0
	pool     pool.Of[Trace]
	ids      atomic.Uint64
	batches  atomic.Uint64
	now      atomic.Pointer[scopes]

	mu sync.Mutex // serializes writers of now
}

// scopes are the settings in force. They are immutable once stored.
type scopes struct {
	on     bool // reports whether any of them may trace a request
	global *setting
	models map[string]*setting
}

// New returns a tracer with these start-up settings. Settings that Triton accepts but that trace nothing, for
// example a level without a file, are accepted and logged.
func New(o Options) (*Tracer, error) {
	t := &Tracer{mode: cmp.Or(o.Mode, ModeTriton), export: o.Exporter, log: o.Log, sinks: o.Sinks, recorder: o.Recorder, params: o.Params, epoch: telemetry.Epoch()}
	t.quota.open(o.AtMost)
	t.all.Store(o.All && len(o.Sinks) > 0)
	t.pool.New = func() *Trace {
		x := &Trace{tracer: t}
		x.rec.Moments, x.rec.Steps, x.rec.Events, x.rec.Forecasts = x.moments[:0], x.steps[:0], x.events[:0], x.forecasts[:0]
		return x
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.mode != ModeTriton && t.mode != ModeOpenTelemetry {
		return nil, status.Errorf(status.InvalidArg,
			"invalid value for trace mode option: %s, expected '%s' or '%s'", o.Mode, ModeTriton, ModeOpenTelemetry)
	}
	v := values{keyRate: 1000, keyCount: -1}
	err := v.change(map[string][]string{
		keys[keyLevel].name: o.Level, keys[keyRate].name: given(o.Rate), keys[keyCount].name: given(o.Count), keys[keyFrequency].name: given(o.LogFrequency),
	}, &[numKeys]bool{})
	if err != nil {
		return nil, err
	}
	t.initial, t.file = v, &file{name: o.File, log: t.log}
	if err := t.check(v); err != nil {
		if status.CodeOf(err) == status.Unsupported {
			return nil, err
		}
		t.log.Warn("requests are not traced", slog.String("reason", err.Error()))
	}
	t.store(newSetting(t, v, [numKeys]bool{}), map[string]*setting{})
	return t, nil
}

func given(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func (t *Tracer) store(global *setting, models map[string]*setting) {
	s := &scopes{on: global.traces || t.all.Load(), global: global, models: models}
	for _, m := range models {
		s.on = s.on || m.traces
	}
	t.now.Store(s)
}

func (s *scopes) of(model string) *setting {
	if m := s.models[model]; m != nil {
		return m
	}
	return s.global
}

// Settings returns the settings of a model, or, for an empty name, those of all models without settings of their own.
func (t *Tracer) Settings(model string) Settings {
	if t == nil {
		return Settings{Mode: ModeTriton, Level: new(values).levels(), Rate: "0", Count: "0", LogFrequency: "0"}
	}
	s := t.now.Load().of(model)
	return Settings{
		Mode: t.mode, Level: s.levels(), File: t.file.name, Exporter: t.export,
		Rate:         strconv.FormatInt(s.values[keyRate], 10),
		Count:        strconv.FormatInt(s.left.Load(), 10),
		LogFrequency: strconv.FormatInt(s.values[keyFrequency], 10),
	}
}

// Forget drops the settings of a removed model.
func (t *Tracer) Forget(model string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now.Load()
	gone := s.models[model]
	if gone == nil {
		return
	}
	models := maps.Clone(s.models)
	delete(models, model)
	t.store(s.global, models)
	gone.retire()
}

// Close writes the collected traces and closes the trace file. Traces that end later are lost; no further request
// is traced.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now.Load()
	t.all.Store(false)
	off := t.initial
	off[keyLevel], off[keyFrequency] = 0, 0
	t.store(newSetting(t, off, [numKeys]bool{}), map[string]*setting{})
	s.retire()
	return t.file.close()
}

// On reports whether any request may be traced. Callers check it before they read the clock for a request that is
// not sampled yet.
//
// hot: one atomic load.
func (t *Tracer) On() bool { return t != nil && t.now.Load().on }

// Sample returns the trace of a request that starts now, nil when it is not traced. The caller must call End on the
// trace.
//
// hot: when nothing is traced, one atomic load.
func (t *Tracer) Sample(model string, version int64, id string) *Trace {
	return t.SampleFrom(model, version, id, &Origin{})
}

// SampleFrom is Sample for a request with a known origin. In ModeOpenTelemetry a request with a client's trace
// context is always sampled. A request whose client asks for its trace to be retained is traced for the sinks,
// within maxRetained, and its Record has Retain set.
//
// hot: when nothing is traced, one atomic load.
func (t *Tracer) SampleFrom(model string, version int64, id string, o *Origin) *Trace {
	if t == nil {
		return nil
	}
	s := t.now.Load()
	if !s.on {
		return nil
	}
	set := s.of(model)
	retain := o.Retain && t.all.Load() && t.retain.take(telemetry.Now())
	if (o.ID == TraceID{} || !set.follows) && !set.sample() {
		if !retain && (!t.all.Load() || !t.quota.take()) {
			return nil
		}
		set = nil
	}
	x := t.newTrace(set, model, version, id)
	x.rec.Retain = retain
	return x
}

// Params returns the names of the request parameters that traces record.
func (t *Tracer) Params() []string {
	if t == nil {
		return nil
	}
	return t.params
}
