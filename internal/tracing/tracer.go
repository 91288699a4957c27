package tracing

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// The trace modes: into a file, or as spans that a sink exports.
const (
	ModeTriton        = "triton"
	ModeOpenTelemetry = "opentelemetry"
)

// Settings are the settings of a scope as they are on the wire.
type Settings struct {
	Mode string
	// Level is OFF alone, or what is traced: TIMESTAMPS.
	Level []string
	// Rate is of how many requests one is traced, Count how many are still to be (-1:
	// no end), LogFrequency how many traces go into one file (0: all into one).
	Rate, Count, LogFrequency string
	File                      string
	// Exporter is where spans go in ModeOpenTelemetry, nil in the other one.
	Exporter *Exporter
}

// Exporter says, as it was given, where spans go and in what portions.
type Exporter struct {
	URL      string `json:"url"`
	Protocol string `json:"protocol"`
	Resource string `json:"resource"`
	// QueueSize is how many spans wait at most, ScheduleDelay in milliseconds for how
	// long, and BatchSize how many leave together.
	QueueSize     string `json:"bsp_max_queue_size"`
	ScheduleDelay string `json:"bsp_schedule_delay"`
	BatchSize     string `json:"bsp_max_export_batch_size"`
	// Detail is true when more spans are sent than Triton sends.
	Detail string `json:"detail"`
}

// Options are the settings at the start. Empty ones have Triton's defaults: no level,
// rate 1000, count -1, log frequency 0 and no file.
type Options struct {
	Settings
	// Sinks are shown every trace and batch. With All every request is traced for them,
	// also those that the settings do not choose.
	// AtMost, unless it is 0, bounds how many such requests are traced in a second;
	// of others only a failure is recorded.
	Sinks  []Sink
	All    bool
	AtMost int
	// Camera chooses requests whose tensors are kept; nil for none.
	Recorder Recorder
	// Params names the parameters of requests that traces keep.
	Params []string
	// Log gets what is wrong with the trace file; nil drops it.
	Log *slog.Logger
}

// Tracer holds the settings of the server and of its models. A nil Tracer traces
// nothing. It is safe for concurrent use.
type Tracer struct {
	mode    string
	export  *Exporter
	initial values
	file    *file
	log     *slog.Logger
	sinks   []Sink
	camera  Recorder
	all     atomic.Bool
	quota   quota
	retain  allowance
	params  []string
	epoch   int64 // ns since 1970 at which telemetry.Now was 0
	pool    pool.Of[Trace]
	ids     atomic.Uint64
	batches atomic.Uint64
	now     atomic.Pointer[scopes]

	mu sync.Mutex // held by who replaces now
}

// scopes are the settings in force; they do not change once stored.
type scopes struct {
	// on tells whether any of them may trace a request.
	on     bool
	global *setting
	models map[string]*setting
}

// New returns a tracer with these start-up settings. Settings that Triton accepts but
// that trace nothing, such as a level without a file, are accepted and logged.
func New(o Options) (*Tracer, error) {
	t := &Tracer{mode: cmp.Or(o.Mode, ModeTriton), export: o.Exporter, log: o.Log, sinks: o.Sinks, camera: o.Recorder, params: o.Params, epoch: epoch()}
	t.quota.open(o.AtMost)
	t.all.Store(o.All && len(o.Sinks) > 0)
	t.pool.New = func() *Trace {
		x := &Trace{tracer: t}
		x.rec.Moments, x.rec.Steps, x.rec.Events = x.moments[:0], x.steps[:0], x.events[:0]
		return x
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.mode != ModeTriton && t.mode != ModeOpenTelemetry {
		return nil, status.Errorf(status.InvalidArg,
			"invalid value for trace mode option: %s, expected '%s' or '%s'", o.Mode, ModeTriton, ModeOpenTelemetry)
	}
	v, _, err := values{rate: 1000, count: -1}.change(map[string][]string{
		keyLevel: o.Level, keyRate: given(o.Rate), keyCount: given(o.Count), keyFrequency: given(o.LogFrequency),
	})
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
	t.store(newSetting(t, v, 0), map[string]*setting{})
	return t, nil
}

// given is a start-up value as an update has it.
func given(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// store puts settings into force.
func (t *Tracer) store(global *setting, models map[string]*setting) {
	s := &scopes{on: global.traces || t.all.Load(), global: global, models: models}
	for _, m := range models {
		s.on = s.on || m.traces
	}
	t.now.Store(s)
}

// of returns the setting of a model's requests.
func (s *scopes) of(model string) *setting {
	if m := s.models[model]; m != nil {
		return m
	}
	return s.global
}

// Settings returns what is in force for a model, or for all that have no settings of
// their own when the name is empty.
func (t *Tracer) Settings(model string) Settings {
	if t == nil {
		return Settings{Mode: ModeTriton, Level: level(0).names(), Rate: "0", Count: "0", LogFrequency: "0"}
	}
	s := t.now.Load().of(model)
	return Settings{
		Mode: t.mode, Level: s.level.names(), File: t.file.name, Exporter: t.export,
		Rate:         strconv.FormatUint(uint64(s.rate), 10),
		Count:        strconv.FormatInt(int64(s.left.Load()), 10),
		LogFrequency: strconv.FormatUint(uint64(s.frequency), 10),
	}
}

// Forget drops the settings of a model that is gone.
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

// Close writes what is collected and ends the trace file. Traces that end later are
// lost, and nothing is traced any more.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now.Load()
	t.all.Store(false)
	off := newSetting(t, values{rate: t.initial.rate, count: t.initial.count}, 0)
	t.store(off, map[string]*setting{})
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		s.models[name].retire()
	}
	s.global.retire()
	return t.file.close()
}

// On tells whether any request may be traced, for those who look at the clock for a
// trace before they know whether there is one.
//
// hot: one atomic load.
func (t *Tracer) On() bool { return t != nil && t.now.Load().on }

// Sample returns the trace of a request about to be served, or nil when it is not to
// be traced. Who gets a trace ends it.
//
// hot: when nothing is traced, one atomic load.
func (t *Tracer) Sample(model string, version int64, id string) *Trace {
	return t.SampleFrom(model, version, id, &Origin{})
}

// SampleFrom is Sample for a request of which it is known how it came. In
// ModeOpenTelemetry one that follows a client's trace is always chosen. One whose client
// asks for its trace is traced for the sinks, within a bound, and its Record says so.
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

// Params names the parameters of requests that traces keep.
func (t *Tracer) Params() []string {
	if t == nil {
		return nil
	}
	return t.params
}
