package python

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tutti/core/status"
	"tutti/core/telemetry"
)

// meters are the metrics that a worker has declared. They go when it does.
type meters struct {
	mu       sync.Mutex
	families map[string]*telemetry.CustomFamily // guarded by mu
	metrics  map[string]*telemetry.CustomMetric // by family and labels; guarded by mu
}

// reading is what a worker says of its metrics.
type reading struct {
	Do      string            `json:"do"`
	Family  string            `json:"family"`
	Kind    string            `json:"kind"`
	Help    string            `json:"help"`
	Labels  map[string]string `json:"labels"`
	Buckets []float64         `json:"buckets"`
	Value   float64           `json:"value"`
}

var meterKinds = map[string]telemetry.CustomKind{
	"counter": telemetry.CustomCounter, "gauge": telemetry.CustomGauge, "histogram": telemetry.CustomHistogram,
}

// meter does what a worker says with its metrics.
func (w *worker) meter(p *packet) error {
	var r reading
	if err := json.Unmarshal(p.body, &r); err != nil {
		return status.Errorf(status.InvalidArg, "unexpected metric: %w", err)
	}
	if w.m.b.metrics == nil {
		return status.Errorf(status.Unsupported, "no metrics are exported here")
	}
	x := &w.meters
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.do(w.m.b.metrics, &r); err != nil {
		return status.Errorf(status.InvalidArg, "%w", err)
	}
	if r.Do != "value" {
		return nil
	}
	text, err := json.Marshal(map[string]float64{"value": r.Value})
	if err != nil {
		return status.Errorf(status.Internal, "metric family '%s': %w", r.Family, err)
	}
	_ = w.side.send(kindReply, flagFinal, p.id, append(newBody(nil), text...)) // a worker that is gone needs none
	return errReplied
}

// do is called with mu held.
func (x *meters) do(all *telemetry.Metrics, r *reading) error {
	switch r.Do {
	case "family":
		return x.family(all, r)
	case "metric":
		return x.metric(r)
	case "drop":
		x.drop(r)
		return nil
	}
	m := x.metrics[r.key()]
	if m == nil {
		return status.Errorf(status.NotFound, "metric family '%s' has no such metric", r.Family)
	}
	var err error
	switch r.Do {
	case "increment":
		err = m.Add(r.Value)
	case "set":
		err = m.Set(r.Value)
	case "observe":
		err = m.Observe(r.Value)
	case "value":
		r.Value, err = m.Value()
	default:
		err = status.Errorf(status.InvalidArg, "unexpected order '%s'", r.Do)
	}
	return err
}

func (x *meters) family(all *telemetry.Metrics, r *reading) error {
	kind, ok := meterKinds[r.Kind]
	if !ok {
		return status.Errorf(status.InvalidArg, "unexpected kind '%s' of metric family '%s', expected counter, gauge or histogram", r.Kind, r.Family)
	}
	f, err := all.Custom(r.Family, r.Help, kind)
	if err != nil {
		return err
	}
	if x.families == nil {
		x.families, x.metrics = map[string]*telemetry.CustomFamily{}, map[string]*telemetry.CustomMetric{}
	}
	if x.families[r.Family] != nil {
		f.Drop() // it is held once already
	}
	x.families[r.Family] = f
	return nil
}

func (x *meters) metric(r *reading) error {
	f := x.families[r.Family]
	if f == nil {
		return status.Errorf(status.NotFound, "there is no metric family '%s'", r.Family)
	}
	m, err := f.Metric(r.Labels, r.Buckets)
	if err != nil {
		return err
	}
	if x.metrics[r.key()] != nil {
		m.Drop()
	}
	x.metrics[r.key()] = m
	return nil
}

func (x *meters) drop(r *reading) {
	if m := x.metrics[r.key()]; m != nil {
		m.Drop()
		delete(x.metrics, r.key())
	}
}

// close gives everything up.
func (x *meters) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.metrics {
		m.Drop()
	}
	for _, f := range x.families {
		f.Drop()
	}
	x.metrics, x.families = nil, nil
}

func (r *reading) key() string {
	var b strings.Builder
	b.WriteString(r.Family)
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		b.WriteString("\n" + strconv.Quote(name) + strconv.Quote(r.Labels[name]))
	}
	return b.String()
}
