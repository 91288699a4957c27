package python

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// modelMessage is the body of MODEL: loading, unloading or checking a model of the server.
type modelMessage struct {
	Do         string            `json:"do"`
	Model      string            `json:"model"`
	Version    string            `json:"version"`
	Config     string            `json:"config"`
	Files      map[string]string `json:"files"`
	Dependents bool              `json:"dependents"`
}

// handleModel handles MODEL.
func (s *side) handleModel(p *packet) error {
	b := s.w.m.b
	var o modelMessage
	if err := json.Unmarshal(p.body, &o); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected order: %w", err)
	}
	switch {
	case o.Do == "ready" && b.catalog == nil:
		return status.Errorf(status.Unsupported, "no models are known here")
	case o.Do == "ready":
		version, err := infer.ParseVersion(o.Version)
		if err != nil {
			return err
		}
		flags := flagFinal
		if b.catalog.ModelReady(o.Model, version) == nil {
			flags |= flagTrue
		}
		s.reply(p.id, flags, nil)
		return errReplied
	case b.control == nil:
		return status.Errorf(status.Unsupported, "no models can be loaded here")
	case o.Do == "load":
		return s.w.load(s.w.callContext(), &o)
	case o.Do == "unload":
		return b.control.Unload(s.w.callContext(), o.Model, o.Dependents)
	}
	return status.Errorf(status.InvalidArg, "unexpected order '%s'", o.Do)
}

// callContext returns a context that lives as long as the worker, with the values of the current command or request. From these
// values the repository recognises a model that loads others while it is being loaded itself.
func (w *worker) callContext() context.Context {
	if outer := w.command.Load(); outer != nil {
		return valuesContext{w.ctx, *outer}
	}
	if outer, _, _ := w.running.caller(); outer != nil {
		return valuesContext{w.ctx, outer}
	}
	return w.ctx
}

// valuesContext is a context with the values of another one.
type valuesContext struct {
	context.Context                 //nolint:containedctx // valuesContext is a context itself
	outer           context.Context //nolint:containedctx // for its values alone
}

// Value implements context.Context.
func (c valuesContext) Value(key any) any { return c.outer.Value(key) }

func (w *worker) load(ctx context.Context, o *modelMessage) error {
	options := infer.LoadOptions{Config: o.Config}
	for path, text := range o.Files {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return status.Errorf(status.InvalidArg, "unexpected content of file '%s' for model '%s': %w", path, o.Model, err)
		}
		if options.Files == nil {
			options.Files = map[string][]byte{}
		}
		options.Files[path] = data
	}
	return w.m.b.control.Load(ctx, o.Model, options)
}

// customMetrics are the metrics that a process has declared. They are removed when it exits.
type customMetrics struct {
	mu       sync.Mutex
	families map[int64]*metricFamily // guarded by mu
	closed   bool                    // the process has exited; guarded by mu
}

// metricFamily is a metric family as one object of the process declared it, with its metrics by label key.
type metricFamily struct {
	*telemetry.CustomFamily
	metrics map[string]*telemetry.CustomMetric
}

// metricMessage is the body of METRIC.
type metricMessage struct {
	Do      string            `json:"do"`
	ID      int64             `json:"id"`
	Family  string            `json:"family"`
	Kind    string            `json:"kind"`
	Help    string            `json:"help"`
	Labels  map[string]string `json:"labels"`
	Buckets []float64         `json:"buckets"`
	Value   float64           `json:"value"`
}

var metricKinds = map[string]telemetry.CustomKind{
	"counter": telemetry.CustomCounter, "gauge": telemetry.CustomGauge, "histogram": telemetry.CustomHistogram,
}

// handleMetric handles METRIC.
func (s *side) handleMetric(p *packet) error {
	var r metricMessage
	if err := json.Unmarshal(p.body, &r); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected metric: %w", err)
	}
	if s.w.m.b.metrics == nil {
		return status.Errorf(status.Unsupported, "no metrics are exported here")
	}
	x := &s.metrics
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return status.Reasonf(status.InstanceLost, "the process has exited")
	}
	if err := x.do(s.w.m.b.metrics, &r); err != nil {
		return status.Errorf(status.InvalidArg, "%w", err)
	}
	if r.Do != "value" {
		return nil
	}
	text, err := json.Marshal(map[string]float64{"value": r.Value})
	if err != nil {
		return status.Errorf(status.Internal, "metric family '%s': %w", r.Family, err)
	}
	_ = s.link.send(kindReply, flagFinal, p.id, append(newBody(nil), text...)) // the process may have exited
	return errReplied
}

// do executes a message. The caller holds mu.
func (x *customMetrics) do(all *telemetry.Metrics, r *metricMessage) (err error) {
	if r.Do == "family" {
		return x.family(all, r)
	}
	f := x.families[r.ID]
	switch {
	case f == nil:
		return status.Errorf(status.NotFound, "there is no metric family '%s'", r.Family)
	case r.Do == "metric":
		return f.metric(r)
	case r.Do == "forget":
		f.drop()
		delete(x.families, r.ID)
		return nil
	}
	m := f.metrics[r.key()]
	switch {
	case m == nil:
		return status.Errorf(status.NotFound, "metric family '%s' has no such metric", r.Family)
	case r.Do == "increment":
		return m.Add(r.Value)
	case r.Do == "set":
		return m.Set(r.Value)
	case r.Do == "observe":
		return m.Observe(r.Value)
	case r.Do == "value":
		r.Value, err = m.Value()
		return err
	}
	return status.Errorf(status.InvalidArg, "unexpected order '%s'", r.Do)
}

func (x *customMetrics) family(all *telemetry.Metrics, r *metricMessage) error {
	kind, ok := metricKinds[r.Kind]
	if !ok {
		return status.Errorf(status.InvalidArg, "unexpected kind '%s' of metric family '%s', expected counter, gauge or histogram", r.Kind, r.Family)
	}
	if x.families[r.ID] != nil {
		return status.Errorf(status.AlreadyExists, "metric family '%s' is declared twice", r.Family)
	}
	f, err := all.Custom(r.Family, r.Help, kind)
	if err != nil {
		return err
	}
	x.families[r.ID] = &metricFamily{CustomFamily: f, metrics: map[string]*telemetry.CustomMetric{}}
	return nil
}

func (f *metricFamily) metric(r *metricMessage) error {
	m, err := f.Metric(r.Labels, r.Buckets)
	if err != nil {
		return err
	}
	if f.metrics[r.key()] != nil {
		m.Drop() // the family already has a reference
	}
	f.metrics[r.key()] = m
	return nil
}

func (f *metricFamily) drop() {
	for _, m := range f.metrics {
		m.Drop()
	}
	f.Drop()
}

// close removes all metrics.
func (x *customMetrics) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.families {
		f.drop()
	}
	clear(x.families)
	x.closed = true
}

// key returns the labels in canonical form.
func (r *metricMessage) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		b.WriteString(strconv.Quote(name) + strconv.Quote(r.Labels[name]))
	}
	return b.String()
}
