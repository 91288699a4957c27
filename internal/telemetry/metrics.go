package telemetry

import (
	"cmp"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// want is the condition under which a family is exported.
type want uint8

const (
	always want = iota
	counterLatency
	summaryLatency
	histogramLatency
	perCache        // of a model with a response cache
	perCacheLatency // and counterLatency
	perCacheSummary // and summaryLatency
	withCache       // there is a response cache
	withSizedCache  // the cache reports its size and entries
	withCPU         // the processor is measured
	wherePadded     // of models with padded batches
	withFetches     // a model was fetched from a bucket
	whereMoved      // of models whose tensors were copied to or from a device
	withPhases      // histograms of phases are on; of models with successful requests
	withGPU         // of GPUs that report the value
	whereRefused    // of models with refused requests
	whereDue        // of models with requests that had a deadline
	whereQueued     // of models with a queue
	whereCarried    // of ensembles with requests
	withInFlight    // the bytes in flight are counted
	uncachedSummary // summaryLatency, of a model without a response cache
)

// family is the declaration of a metric. Exactly one of its functions returns the values: those of a model, or of
// the whole server.
type family struct {
	name, help string
	kind       dto.MetricType
	when       want
	model      func(*Model) float64
	server     func(*Metrics) float64
	// latency is the summary or histogram of a model.
	latency observed
	// reasons marks the family with the reason label.
	reasons bool
	// moves returns a value of a model's copies between places, which have further labels.
	moves func(*Move) uint64
	// many appends any number of metrics of a model, with their labels.
	many func(*scraped, []*dto.Metric) []*dto.Metric
	// gpu returns the value of a GPU, negative if the GPU does not report it.
	gpu func(*GPU) float64
}

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	summary   = dto.MetricType_SUMMARY
	histogram = dto.MetricType_HISTOGRAM

	nsPerUs = 1000
)

func micros(ns func(*Model) uint64) func(*Model) float64 {
	return func(m *Model) float64 { return float64(ns(m) / nsPerUs) }
}

func count(of func(*Model) (uint64, uint64)) func(*Model) float64 {
	return func(m *Model) float64 { n, _ := of(m); return float64(n) }
}

func spent(of func(*Model) (uint64, uint64)) func(*Model) float64 {
	return func(m *Model) float64 { _, ns := of(m); return float64(ns / nsPerUs) }
}

func cached(of func(CacheCounts) float64) func(*Metrics) float64 {
	return func(x *Metrics) float64 { return of(x.counts) }
}

// FirstResponse is the family whose buckets a model may choose.
const FirstResponse = "nv_inference_first_response_histogram_ms"

// families are Triton's metrics and ours, which begin with ensemble_, sorted by name.
var families = sorted([]family{
	{name: "nv_inference_request_success", help: "Successful requests", kind: counter, model: func(m *Model) float64 { return float64(m.Responses()) }},
	{name: "nv_inference_request_failure", help: "Requests that failed, by reason; a failed request to an ensemble counts 2, for itself and for its step", kind: counter, reasons: true},
	{name: "nv_inference_count", help: "Inferences made: every row of a batch counts, hits of the response cache do not", kind: counter, model: func(m *Model) float64 { return float64(m.Rows()) }},
	{name: "nv_inference_exec_count", help: "Batches executed", kind: counter, model: func(m *Model) float64 { return float64(m.Executions()) }},
	{name: "nv_inference_request_duration_us", help: "Duration of successful requests in microseconds", kind: counter, when: counterLatency, model: micros((*Model).TotalNs)},
	{name: "nv_inference_queue_duration_us", help: "Microseconds that successful requests waited for an instance", kind: counter, when: counterLatency, model: micros((*Model).QueueNs)},
	{name: "nv_inference_compute_input_duration_us", help: "Microseconds spent gathering the inputs of successful requests", kind: counter, when: counterLatency, model: micros(func(m *Model) uint64 { return m.Requests().InputNs })},
	{name: "nv_inference_compute_infer_duration_us", help: "Microseconds spent in the model for successful requests", kind: counter, when: counterLatency, model: micros(func(m *Model) uint64 { return m.Requests().InferNs })},
	{name: "nv_inference_compute_output_duration_us", help: "Microseconds spent passing on the outputs of successful requests", kind: counter, when: counterLatency, model: micros(func(m *Model) uint64 { return m.Requests().OutputNs })},
	{name: "nv_inference_pending_request_count", help: "Requests waiting for an instance now", kind: gauge, model: func(m *Model) float64 { return float64(m.Pending()) }},
	{name: "nv_model_load_duration_secs", help: "Duration of the last load of the model in seconds", kind: gauge, model: func(m *Model) float64 { return time.Duration(m.LoadNs()).Seconds() }},

	{name: FirstResponse, help: "Milliseconds from a request to its first response, of decoupled models", kind: histogram, when: histogramLatency, latency: firstResponse},
	{name: "nv_inference_request_summary_us", help: "Duration of successful requests in microseconds", kind: summary, when: uncachedSummary, latency: requestLatency},
	{name: "nv_inference_queue_summary_us", help: "Microseconds that successful requests waited for an instance", kind: summary, when: summaryLatency, latency: queueLatency},
	{name: "nv_inference_compute_input_summary_us", help: "Microseconds spent gathering the inputs of successful requests", kind: summary, when: summaryLatency, latency: inputLatency},
	{name: "nv_inference_compute_infer_summary_us", help: "Microseconds spent in the model for successful requests", kind: summary, when: summaryLatency, latency: inferLatency},
	{name: "nv_inference_compute_output_summary_us", help: "Microseconds spent passing on the outputs of successful requests", kind: summary, when: summaryLatency, latency: outputLatency},

	{name: "nv_cache_num_hits_per_model", help: "Requests with a response from the response cache", kind: counter, when: perCache, model: count((*Model).Hits)},
	{name: "nv_cache_num_misses_per_model", help: "Requests without a response in the response cache", kind: counter, when: perCache, model: count((*Model).Misses)},
	{name: "nv_cache_hit_duration_per_model", help: "Microseconds spent on lookups that found a response in the response cache", kind: counter, when: perCacheLatency, model: spent((*Model).Hits)},
	{name: "nv_cache_miss_duration_per_model", help: "Microseconds spent on lookups that found none, and on storing the response", kind: counter, when: perCacheLatency, model: spent((*Model).Misses)},
	{name: "nv_cache_hit_summary_per_model", help: "Microseconds spent on lookups that found a response in the response cache", kind: summary, when: perCacheSummary, latency: hitLatency},
	{name: "nv_cache_miss_summary_per_model", help: "Microseconds spent on lookups that found none, and on storing the response", kind: summary, when: perCacheSummary, latency: missLatency},

	{name: "nv_cache_util", help: "Used share of the response cache, 0 to 1", kind: gauge, when: withSizedCache, server: cached(func(c CacheCounts) float64 { return c.Util })},
	{name: "nv_cache_num_entries", help: "Responses in the response cache", kind: gauge, when: withSizedCache, server: cached(func(c CacheCounts) float64 { return float64(c.Entries) })},
	{name: "nv_cache_num_evictions", help: "Responses evicted for newer ones", kind: gauge, when: withSizedCache, server: cached(func(c CacheCounts) float64 { return float64(c.Evictions) })},
	{name: "nv_cache_num_lookups", help: "Lookups in the response cache", kind: gauge, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.Lookups) })},
	{name: "nv_cache_num_hits", help: "Lookups that found a response", kind: gauge, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.Hits) })},
	{name: "nv_cache_num_misses", help: "Lookups that found none", kind: gauge, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.Lookups - min(c.Lookups, c.Hits)) })},
	{name: "nv_cache_lookup_duration", help: "Microseconds spent in lookups", kind: gauge, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.LookupNs / nsPerUs) })},
	{name: "nv_cache_insertion_duration", help: "Microseconds spent storing responses", kind: gauge, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.InsertNs / nsPerUs) })},
	{name: "ensemble_cache_dropped_total", help: "Responses that were not stored: too large, or the cache was busy", kind: counter, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.Dropped) })},
	{name: "ensemble_cache_errors_total", help: "Failures of the remote response cache", kind: counter, when: withCache, server: cached(func(c CacheCounts) float64 { return float64(c.Errors) })},

	{name: "nv_pinned_memory_pool_total_bytes", help: "Size of the pool of pinned memory", kind: gauge, server: func(x *Metrics) float64 { return float64(x.pinnedTotal) }},
	{name: "nv_pinned_memory_pool_used_bytes", help: "Used part of the pool of pinned memory", kind: gauge, server: func(x *Metrics) float64 { return float64(x.pinnedUsed) }},
	{name: "nv_cpu_utilization", help: "Busy share of the machine's processors, 0 to 1", kind: gauge, when: withCPU, server: func(x *Metrics) float64 { return x.cpu.busy }},
	{name: "nv_cpu_memory_total_bytes", help: "Memory of the machine", kind: gauge, when: withCPU, server: func(x *Metrics) float64 { return x.cpu.total }},
	{name: "nv_cpu_memory_used_bytes", help: "Used memory of the machine", kind: gauge, when: withCPU, server: func(x *Metrics) float64 { return x.cpu.used }},

	{name: "nv_gpu_utilization", help: "Busy share of a GPU, 0 to 1", kind: gauge, when: withGPU, gpu: func(g *GPU) float64 { return g.Utilization }},
	{name: "nv_gpu_memory_total_bytes", help: "Memory of a GPU", kind: gauge, when: withGPU, gpu: func(g *GPU) float64 { return g.MemoryTotal }},
	{name: "nv_gpu_memory_used_bytes", help: "Used memory of a GPU", kind: gauge, when: withGPU, gpu: func(g *GPU) float64 { return g.MemoryUsed }},
	{name: "nv_gpu_power_usage", help: "Power usage of a GPU in watts", kind: gauge, when: withGPU, gpu: func(g *GPU) float64 { return g.PowerUsage }},
	{name: "nv_gpu_power_limit", help: "Power limit of a GPU in watts", kind: gauge, when: withGPU, gpu: func(g *GPU) float64 { return g.PowerLimit }},
	{name: "nv_energy_consumption", help: "Joules that a GPU used since the server started", kind: counter, when: withGPU, gpu: func(g *GPU) float64 { return g.Energy }},

	{name: "ensemble_batch_size", help: "Rows of executed batches", kind: histogram, many: batchesOf},
	{name: "ensemble_latency_seconds", help: "Seconds of successful requests by phase; an ensemble's are sums over its steps, but for the total", kind: histogram, when: withPhases, many: phasesOf},
	{name: "ensemble_node_latency_seconds", help: "Seconds of the steps of an ensemble by node and phase", kind: histogram, when: withPhases, many: stepPhasesOf},
	{name: "ensemble_queue_depth", help: "Requests waiting for an instance at each arrival, the new one included", kind: histogram, when: whereQueued, many: depthsOf},
	{name: "ensemble_batch_padding_ratio", help: "Share of padding in the elements of batches of rows of different lengths", kind: histogram, when: wherePadded, many: paddingOf},
	{name: "ensemble_deadline_slack_seconds", help: "Seconds left until the deadlines of successful requests, 0 for late ones", kind: histogram, when: whereDue, many: slackOf},
	{name: "ensemble_refusals_total", help: "Requests that were not executed, by reason", kind: counter, when: whereRefused, many: refusalsOf},
	{name: "ensemble_edge_bytes_total", help: "Bytes of the tensors between the steps of an ensemble, by the place where they were put", kind: counter, when: whereCarried, many: edgesOf},
	{name: "ensemble_model_load_failures_total", help: "Failed loads of models", kind: counter, server: func(x *Metrics) float64 { return float64(x.failedLoads.Load()) }},
	{name: "ensemble_inflight_bytes", help: "Bytes of requests being received, executed and responded to now, without the memory that models allocate", kind: gauge, when: withInFlight, server: func(x *Metrics) float64 { return float64(x.inFlight.Bytes()) }},
	{name: "ensemble_inflight_limit_bytes", help: "Limit of the bytes in flight, 0 for no limit", kind: gauge, when: withInFlight, server: func(x *Metrics) float64 { return float64(x.inFlight.Limit()) }},
	{name: "ensemble_inflight_refusals_total", help: "Requests refused because of the bytes in flight", kind: counter, when: withInFlight, server: func(x *Metrics) float64 { return float64(x.inFlight.Refused()) }},
	{name: "ensemble_queue_depth_max", help: "Maximum of requests that waited for an instance at the same time", kind: gauge, model: func(m *Model) float64 { return float64(m.Deepest()) }},
	{name: "ensemble_batch_elements_total", help: "Elements that requests gave to batches of rows of different lengths", kind: counter, when: wherePadded, model: func(m *Model) float64 { n, _ := m.Padding(); return float64(n) }},
	{name: "ensemble_batch_padding_elements_total", help: "Elements added to those batches to make their rows equally long", kind: counter, when: wherePadded, model: func(m *Model) float64 { _, n := m.Padding(); return float64(n) }},
	{name: "ensemble_moves_total", help: "Tensors copied between host and devices, or between devices", kind: counter, when: whereMoved, moves: func(v *Move) uint64 { return v.Count }},
	{name: "ensemble_moves_bytes_total", help: "Bytes of the tensors copied between host and devices, or between devices", kind: counter, when: whereMoved, moves: func(v *Move) uint64 { return v.Bytes }},
	{name: "ensemble_repository_fetched_bytes_total", help: "Bytes of models fetched from buckets", kind: counter, when: withFetches, server: func(x *Metrics) float64 { return float64(x.fetchedBytes.Load()) }},
	{name: "ensemble_repository_fetch_seconds_total", help: "Seconds spent fetching models from buckets, summed over models", kind: counter, when: withFetches, server: func(x *Metrics) float64 { return time.Duration(x.fetchedNs.Load()).Seconds() }},
})

func sorted(list []family) []family {
	slices.SortFunc(list, func(a, b family) int { return cmp.Compare(a.name, b.name) })
	return list
}

// When describes when the named family is exported, for the reference page.
func When(name string) string {
	for i := range families {
		if families[i].name == name {
			return [...]string{
				"always", "unless `counter_latencies=false`", "with `summary_latencies=true`", "with `histogram_latencies=true`, of decoupled models",
				"of models with `response_cache`", "of models with `response_cache`, unless `counter_latencies=false`",
				"of models with `response_cache`, with `summary_latencies=true`", "with `--cache-config`", "with `--cache-config local`",
				"unless `--allow-cpu-metrics=false`", "once a batch was padded", "once a model was fetched",
				"once a tensor was copied to or from a device",
				"unless `phase_histograms=false`, once a request succeeded", "of GPUs that report it, unless `--allow-gpu-metrics=false`",
				"once a request was refused", "once a request with a deadline succeeded", "once a request waited",
				"of ensembles, once a request was received",
				"always, of a server", "with `summary_latencies=true`, of models without `response_cache`",
			}[families[i].when]
		}
	}
	return ""
}
