package telemetry

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func sortedKeys(m map[int]*Phases) []int { return slices.Sorted(maps.Keys(m)) }

// metric is the one declaration of a metric made of a model's counters.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*Model) float64
}

const nsPerUs = 1000

func micros(ns func(*Model) uint64) func(*Model) float64 {
	return func(m *Model) float64 { return float64(ns(m) / nsPerUs) }
}

// modelMetrics are Triton's families; nv_inference_request_failure stands apart
// because it has one more label.
var modelMetrics = []metric{
	{"nv_inference_request_success", "Requests answered", prometheus.CounterValue, func(m *Model) float64 { return float64(m.Requests().Count) }},
	{"nv_inference_count", "Inferences made: every row of a batch counts", prometheus.CounterValue, func(m *Model) float64 { return float64(m.Rows()) }},
	{"nv_inference_exec_count", "Batches executed", prometheus.CounterValue, func(m *Model) float64 { return float64(m.Executions()) }},
	{"nv_inference_request_duration_us", "Microseconds that answered requests took", prometheus.CounterValue, micros((*Model).TotalNs)},
	{"nv_inference_queue_duration_us", "Microseconds that answered requests waited for an instance", prometheus.CounterValue, micros((*Model).QueueNs)},
	{"nv_inference_compute_input_duration_us", "Microseconds spent gathering the inputs of answered requests", prometheus.CounterValue, micros(func(m *Model) uint64 { return m.Requests().InputNs })},
	{"nv_inference_compute_infer_duration_us", "Microseconds spent in the model for answered requests", prometheus.CounterValue, micros(func(m *Model) uint64 { return m.Requests().InferNs })},
	{"nv_inference_compute_output_duration_us", "Microseconds spent handing on the outputs of answered requests", prometheus.CounterValue, micros(func(m *Model) uint64 { return m.Requests().OutputNs })},
	{"nv_model_load_duration_secs", "Seconds that loading the model took, the last time", prometheus.GaugeValue, func(m *Model) float64 { return time.Duration(m.LoadNs()).Seconds() }},
	{"nv_inference_pending_request_count", "Requests waiting for an instance now", prometheus.GaugeValue, func(m *Model) float64 { return float64(m.Pending()) }},
}

const (
	failureName = "nv_inference_request_failure"
	failureHelp = "Requests that failed, by reason"
)

// paddingMetrics are exported of models that have padded.
var paddingMetrics = [2]struct{ name, help string }{
	{"ensemble_batch_elements_total", "Elements that requests gave to batches of rows of different lengths"},
	{"ensemble_batch_padding_elements_total", "Elements added to those batches to make their rows equally long"},
}

// Metrics exports the counters of every registered model version. It is a
// prometheus.Collector: nothing is counted twice, a scrape reads the models' own.
type Metrics struct {
	descs   []*prometheus.Desc
	failure *prometheus.Desc
	labels  int                 // of a model's metrics
	fetch   [2]*prometheus.Desc // bytes and seconds
	moves   [2]*prometheus.Desc // count and bytes
	padding [2]*prometheus.Desc // given and added

	fetchedBytes, fetchedNs atomic.Int64

	mu     sync.Mutex
	models map[*Model]struct{} // guarded by mu
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics returns an exporter without models.
func NewMetrics() *Metrics { return newMetrics([]string{"model", "version"}) }

// NewNamespacedMetrics is NewMetrics with one label more, the models' namespace.
func NewNamespacedMetrics() *Metrics { return newMetrics([]string{"model", "version", "namespace"}) }

func newMetrics(labels []string) *Metrics {
	x := &Metrics{
		labels:  len(labels),
		failure: prometheus.NewDesc(failureName, failureHelp, append(slices.Clone(labels), "reason"), nil),
		models:  map[*Model]struct{}{},
	}
	for i, m := range fetchMetrics {
		x.fetch[i] = prometheus.NewDesc(m.name, m.help, nil, nil)
	}
	for i, m := range moveMetrics {
		x.moves[i] = prometheus.NewDesc(m.name, m.help, append(slices.Clone(labels), "tensor", "from", "to", "reason"), nil)
	}
	for i, m := range paddingMetrics {
		x.padding[i] = prometheus.NewDesc(m.name, m.help, labels, nil)
	}
	for _, m := range modelMetrics {
		x.descs = append(x.descs, prometheus.NewDesc(m.name, m.help, labels, nil))
	}
	return x
}

// fetchMetrics are exported once a model came from a bucket.
var fetchMetrics = [2]struct{ name, help string }{
	{"ensemble_repository_fetched_bytes_total", "Bytes of models fetched from buckets"},
	{"ensemble_repository_fetch_seconds_total", "Seconds spent fetching models from buckets, summed over models"},
}

// moveMetrics are exported once a tensor was copied to or from a device.
var moveMetrics = [2]struct{ name, help string }{
	{"ensemble_moves_total", "Tensors copied between host and devices, or between devices"},
	{"ensemble_moves_bytes_total", "Bytes of the tensors copied between host and devices, or between devices"},
}

// Fetched counts what came from a bucket for a model, and how long it took.
func (x *Metrics) Fetched(bytes, ns int64) {
	x.fetchedBytes.Add(bytes)
	x.fetchedNs.Add(ns)
}

// Add starts exporting m.
func (x *Metrics) Add(m *Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.models[m] = struct{}{}
}

// Remove stops exporting m.
func (x *Metrics) Remove(m *Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.models, m)
}

// Describe implements prometheus.Collector.
func (x *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range x.descs {
		ch <- d
	}
	ch <- x.failure
	ch <- x.fetch[0]
	ch <- x.fetch[1]
	ch <- x.moves[0]
	ch <- x.moves[1]
	ch <- x.padding[0]
	ch <- x.padding[1]
}

// Collect implements prometheus.Collector.
func (x *Metrics) Collect(ch chan<- prometheus.Metric) {
	x.mu.Lock()
	models := slices.Collect(maps.Keys(x.models))
	x.mu.Unlock()
	if n := x.fetchedNs.Load(); n > 0 {
		ch <- prometheus.MustNewConstMetric(x.fetch[0], prometheus.CounterValue, float64(x.fetchedBytes.Load()))
		ch <- prometheus.MustNewConstMetric(x.fetch[1], prometheus.CounterValue, time.Duration(n).Seconds())
	}
	for _, m := range models {
		// A folder may have any name, a label may not.
		values := []string{
			strings.ToValidUTF8(m.Name, "\uFFFD"), strconv.FormatInt(m.Version, 10), strings.ToValidUTF8(m.Namespace, "\uFFFD"),
		}[:x.labels]
		for i, d := range x.descs {
			ch <- prometheus.MustNewConstMetric(d, modelMetrics[i].kind, modelMetrics[i].value(m), values...)
		}
		if given, added := m.Padding(); given > 0 {
			ch <- prometheus.MustNewConstMetric(x.padding[0], prometheus.CounterValue, float64(given), values...)
			ch <- prometheus.MustNewConstMetric(x.padding[1], prometheus.CounterValue, float64(added), values...)
		}
		for r := range numReasons {
			n, _ := m.Failures[r].Load()
			ch <- prometheus.MustNewConstMetric(x.failure, prometheus.CounterValue, float64(n), append(values[:x.labels:x.labels], r.String())...)
		}
		for _, v := range m.Moves.List() {
			more := slices.Concat(values[:x.labels], []string{strings.ToValidUTF8(v.Tensor, "\uFFFD"), v.From.String(), v.To.String(), v.Reason.String()})
			ch <- prometheus.MustNewConstMetric(x.moves[0], prometheus.CounterValue, float64(v.Count), more...)
			ch <- prometheus.MustNewConstMetric(x.moves[1], prometheus.CounterValue, float64(v.Bytes), more...)
		}
	}
}
