package telemetry

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tutti-server/tutti/core/tensor"
)

// want is the condition under which a family is exported.
type want struct {
	text   string                     // for the reference page
	server func(*Metrics) bool        // of the whole family; nil for always
	model  func(*series, *Model) bool // of the metric of a model; nil for every model
}

var (
	always         = want{text: "always"}
	counterLatency = want{"unless `counter_latencies=false`", func(x *Metrics) bool { return !x.o.NoCounterLatencies }, nil}
	summaryLatency = want{"with `summary_latencies=true`", func(x *Metrics) bool { return x.o.Summaries }, nil}
	// uncachedSummary is not exported for models with a response cache, as in Triton.
	uncachedSummary  = want{"with `summary_latencies=true`, of models without `response_cache`", summaryLatency.server, func(s *series, _ *Model) bool { return !s.cached() }}
	histogramLatency = want{"with `histogram_latencies=true`, of decoupled models", func(x *Metrics) bool { return x.o.Histograms }, nil}

	withCache       = want{"with `--cache-config`", func(x *Metrics) bool { return x.cache != nil }, nil}
	withSizedCache  = want{"with `--cache-config local`", func(x *Metrics) bool { return x.cache != nil && x.counts.Sized }, nil}
	perCache        = want{"of models with `response_cache`", withCache.server, ofCached}
	perCacheLatency = want{"of models with `response_cache`, unless `counter_latencies=false`", func(x *Metrics) bool { return x.cache != nil && !x.o.NoCounterLatencies }, ofCached}
	perCacheSummary = want{"of models with `response_cache`, with `summary_latencies=true`", func(x *Metrics) bool { return x.cache != nil && x.o.Summaries }, ofCached}

	withCPU      = want{"unless `--allow-cpu-metrics=false`", func(x *Metrics) bool { return x.o.CPU && x.cpu.known }, nil}
	withGPU      = want{text: "of GPUs that report it, unless `--allow-gpu-metrics=false`"}
	withRequests = want{"always, of a server", func(x *Metrics) bool { return x.requests != nil }, nil}
	withInFlight = want{"always, of a server", func(x *Metrics) bool { return x.inFlight != nil }, nil}
	withRefusals = want{"always, of a server", func(x *Metrics) bool { return x.refusals != nil }, nil}
	withClients  = want{"with `--client-key`, once a request was refused because its client was over its share", func(x *Metrics) bool { return x.clients != nil }, nil}
	withFetches  = want{"once a model was fetched", func(x *Metrics) bool { return x.fetchedNs.Load() > 0 }, nil}
	withDevices  = want{"with GPUs", func(x *Metrics) bool { return x.devices != nil && len(x.devices()) > 0 }, nil}
	withPhases   = want{"unless `phase_histograms=false`, once a request succeeded", func(x *Metrics) bool { return !x.o.NoPhases }, nil}
	wherePadded  = want{"once a batch was padded", nil, func(_ *series, m *Model) bool { return m.padded.elements.Load() > 0 }}
	whereCopied  = want{text: "once a tensor was copied to or from a device"}
	whereRefused = want{text: "once a request was refused"}
	whereDue     = want{text: "once a request with a deadline succeeded"}
	whereEnded   = want{"of ensembles, once a request with a deadline ended", nil, func(_ *series, m *Model) bool { return m.Outcomes() != OutcomeCounts{} }}
	whereLoaded  = want{"always, of a server", nil, func(_ *series, m *Model) bool { return m.load.Load() != nil }}
	whereQueued  = want{text: "once a request waited"}
	whereStuck   = want{"once an execution or an instance has exceeded a limit of the watchdog", nil, func(_ *series, m *Model) bool { return m.Stuck.Load()+m.Recycled.Load() > 0 }}
	whereEvicted = want{"once the model was evicted", nil, func(_ *series, m *Model) bool { return m.Evictions.Load() > 0 }}
	whereRouted  = want{text: "of ensembles whose steps are divided"}
	whereShadow  = want{text: "of ensembles whose steps have shadows"}
	whereChosen  = want{text: "of ensembles with conditions"}
	whereFanOut  = want{text: "of ensembles with fan-outs"}
	whereFaults  = want{text: "of ensembles with fallbacks or optional results"}
	whereCarried = want{text: "of ensembles, once a request was received"}
)

func ofCached(s *series, _ *Model) bool { return s.cached() }

// family is the declaration of a metric. values appends its metrics to a scrape.
type family struct {
	name, help string
	kind       dto.MetricType
	when       want
	values     func(*scrape)
}

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	summary   = dto.MetricType_SUMMARY
	histogram = dto.MetricType_HISTOGRAM

	nsPerUs = 1000
)

// FirstResponse is the family whose buckets a model may choose.
const FirstResponse = "nv_inference_first_response_histogram_ms"

// families are Triton's metrics and ours, which begin with ensemble_, sorted by name.
var families = slices.SortedFunc(slices.Values([]family{
	{"nv_inference_request_success", "Successful requests", counter, always, perModel(func(m *Model) float64 { return float64(m.Responses()) })},
	{"nv_inference_request_failure", "Requests that failed, by reason; a failed request to an ensemble counts 2, for itself and for its step", counter, always, each(failuresOf)},
	{"nv_inference_count", "Inferences made: every row of a batch counts, hits of the response cache do not", counter, always, perModel(func(m *Model) float64 { return float64(m.Rows()) })},
	{"nv_inference_exec_count", "Batches executed", counter, always, perModel(func(m *Model) float64 { return float64(m.Executions()) })},
	{"nv_inference_request_duration_us", "Duration of successful requests in microseconds", counter, counterLatency, micros((*Model).TotalNs)},
	{"nv_inference_queue_duration_us", "Microseconds that successful requests waited for an instance", counter, counterLatency, micros((*Model).QueueNs)},
	{"nv_inference_compute_input_duration_us", "Microseconds spent gathering the inputs of successful requests", counter, counterLatency, micros(func(m *Model) uint64 { return m.Requests().InputNs })},
	{"nv_inference_compute_infer_duration_us", "Microseconds spent in the model for successful requests", counter, counterLatency, micros(func(m *Model) uint64 { return m.Requests().InferNs })},
	{"nv_inference_compute_output_duration_us", "Microseconds spent passing on the outputs of successful requests", counter, counterLatency, micros(func(m *Model) uint64 { return m.Requests().OutputNs })},
	{"nv_inference_pending_request_count", "Requests waiting for an instance now", gauge, always, perModel(func(m *Model) float64 { return float64(m.Pending()) })},
	{"nv_model_load_duration_secs", "Duration of the last load of the model in seconds", gauge, always, perModel(func(m *Model) float64 { return time.Duration(m.LoadNs.Load()).Seconds() })},
	{"ensemble_stuck_executions_total", "Executions that took longer than the watchdog allows", counter, whereStuck, perModel(func(m *Model) float64 { return float64(m.Stuck.Load()) })},
	{"ensemble_recycled_instances_total", "Instances whose process the watchdog has ended, because of an execution or of its memory", counter, whereStuck, perModel(func(m *Model) float64 { return float64(m.Recycled.Load()) })},
	{"ensemble_model_evictions_total", "Times that an idle model was unloaded from a full device, with `--model-memory=lru`", counter, whereEvicted, perModel(func(m *Model) float64 { return float64(m.Evictions.Load()) })},
	{"ensemble_model_reloads_total", "Times that an evicted model was loaded again", counter, whereEvicted, perModel(func(m *Model) float64 { return float64(m.Reloads.Load()) })},

	{FirstResponse, "Milliseconds from a request to its first response, of decoupled models", histogram, histogramLatency, each(firstResponses)},
	{"nv_inference_request_summary_us", "Duration of successful requests in microseconds", summary, uncachedSummary, quantiles(requestLatency)},
	{"nv_inference_queue_summary_us", "Microseconds that successful requests waited for an instance", summary, summaryLatency, quantiles(queueLatency)},
	{"nv_inference_compute_input_summary_us", "Microseconds spent gathering the inputs of successful requests", summary, summaryLatency, quantiles(inputLatency)},
	{"nv_inference_compute_infer_summary_us", "Microseconds spent in the model for successful requests", summary, summaryLatency, quantiles(inferLatency)},
	{"nv_inference_compute_output_summary_us", "Microseconds spent passing on the outputs of successful requests", summary, summaryLatency, quantiles(outputLatency)},

	{"nv_cache_num_hits_per_model", "Requests with a response from the response cache", counter, perCache, perModel(func(m *Model) float64 { return float64(m.Hits.count.Load()) })},
	{"nv_cache_num_misses_per_model", "Requests without a response in the response cache", counter, perCache, perModel(func(m *Model) float64 { return float64(m.Misses.count.Load()) })},
	{"nv_cache_hit_duration_per_model", "Microseconds spent on lookups that found a response in the response cache", counter, perCacheLatency, micros(func(m *Model) uint64 { return m.Hits.ns.Load() })},
	{"nv_cache_miss_duration_per_model", "Microseconds spent on lookups that found none, and on storing the response", counter, perCacheLatency, micros(func(m *Model) uint64 { return m.Misses.ns.Load() })},
	{"nv_cache_hit_summary_per_model", "Microseconds spent on lookups that found a response in the response cache", summary, perCacheSummary, quantiles(hitLatency)},
	{"nv_cache_miss_summary_per_model", "Microseconds spent on lookups that found none, and on storing the response", summary, perCacheSummary, quantiles(missLatency)},

	{"nv_cache_util", "Used share of the response cache, 0 to 1", gauge, withSizedCache, ofServer(func(x *Metrics) float64 { return x.counts.Util })},
	{"nv_cache_num_entries", "Responses in the response cache", gauge, withSizedCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Entries) })},
	{"nv_cache_num_evictions", "Responses evicted for newer ones", gauge, withSizedCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Evictions) })},
	{"nv_cache_num_lookups", "Lookups in the response cache", gauge, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Lookups) })},
	{"nv_cache_num_hits", "Lookups that found a response", gauge, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Hits) })},
	{"nv_cache_num_misses", "Lookups that found none", gauge, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Lookups - min(x.counts.Lookups, x.counts.Hits)) })},
	{"nv_cache_lookup_duration", "Microseconds spent in lookups", gauge, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.LookupNs / nsPerUs) })},
	{"nv_cache_insertion_duration", "Microseconds spent storing responses", gauge, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.InsertNs / nsPerUs) })},
	{"ensemble_cache_dropped_total", "Responses that were not stored: too large, or the cache was busy", counter, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Dropped) })},
	{"ensemble_cache_errors_total", "Failures of the remote response cache", counter, withCache, ofServer(func(x *Metrics) float64 { return float64(x.counts.Errors) })},

	{"nv_pinned_memory_pool_total_bytes", "Size of the pool of pinned memory", gauge, always, ofServer(func(x *Metrics) float64 { return float64(x.pinnedTotal) })},
	{"nv_pinned_memory_pool_used_bytes", "Used part of the pool of pinned memory", gauge, always, ofServer(func(x *Metrics) float64 { return float64(x.pinnedUsed) })},
	{"nv_cpu_utilization", "Busy share of the machine's processors, 0 to 1", gauge, withCPU, ofServer(func(x *Metrics) float64 { return x.cpu.busy })},
	{"nv_cpu_memory_total_bytes", "Memory of the machine", gauge, withCPU, ofServer(func(x *Metrics) float64 { return x.cpu.total })},
	{"nv_cpu_memory_used_bytes", "Used memory of the machine", gauge, withCPU, ofServer(func(x *Metrics) float64 { return x.cpu.used })},

	{"nv_gpu_utilization", "Busy share of a GPU, 0 to 1", gauge, withGPU, perGPU(func(g *GPU) float64 { return g.Utilization })},
	{"nv_gpu_memory_total_bytes", "Memory of a GPU", gauge, withGPU, perGPU(func(g *GPU) float64 { return g.MemoryTotal })},
	{"nv_gpu_memory_used_bytes", "Used memory of a GPU", gauge, withGPU, perGPU(func(g *GPU) float64 { return g.MemoryUsed })},
	{"nv_gpu_power_usage", "Power usage of a GPU in watts", gauge, withGPU, perGPU(func(g *GPU) float64 { return g.PowerUsage })},
	{"nv_gpu_power_limit", "Power limit of a GPU in watts", gauge, withGPU, perGPU(func(g *GPU) float64 { return g.PowerLimit })},
	{"nv_energy_consumption", "Joules that a GPU used since the server started", counter, withGPU, perGPU(func(g *GPU) float64 { return g.Energy })},

	{"ensemble_batch_size", "Rows of executed batches", histogram, always, tallies((*Model).batchTally)},
	{"ensemble_latency_seconds", "Seconds of successful requests by phase; an ensemble's are sums over its steps, but for the total", histogram, withPhases, each(phasesOf)},
	{"ensemble_node_latency_seconds", "Seconds of the steps of an ensemble by node and phase", histogram, withPhases, each(stepPhasesOf)},
	{"ensemble_queue_depth", "Requests waiting for an instance at each arrival, the new one included", histogram, whereQueued, tallies(func(m *Model, a *arena) *tally { return m.waiting.depth.tally(a, depthScale, 1) })},
	{"ensemble_batch_padding_ratio", "Share of padding in the elements of batches of rows of different lengths", histogram, want{text: wherePadded.text}, tallies(func(m *Model, a *arena) *tally { return m.padded.share.tally(a, shareScale, ppm) })},
	{"ensemble_deadline_slack_seconds", "Seconds left until the deadlines of successful requests, 0 for late ones", histogram, whereDue, tallies(func(m *Model, a *arena) *tally { return m.slack.tally(a, slackScale, nsPerSecond) })},
	{"ensemble_deadline_prediction_ratio", "Time that successful requests of ensembles with deadlines took, over the time predicted on arrival", histogram, want{text: "of ensembles, once such a request was predicted"}, tallies(func(m *Model, a *arena) *tally { return m.predicted.tally(a, ratioScale, ppm) })},
	{"ensemble_deadline_requests_total", "Requests of ensembles with deadlines, by how they ended; cancelled ones and hits of the response cache are not among them", counter, whereEnded, each(outcomesOf)},
	{"ensemble_refusals_total", "Requests that were not executed, by reason", counter, whereRefused, each(refusalsOf)},
	{"ensemble_edge_bytes_total", "Bytes of the tensors between the steps of an ensemble, by the place where they were put", counter, whereCarried, each(edgesOf)},
	{"ensemble_route_requests_total", "Requests that an alternative of a step executed, by result", counter, whereRouted, each(routeRequestsOf)},
	{"ensemble_route_seconds_total", "Seconds of the successful requests of an alternative of a step", counter, whereRouted, perRoute(func(r *Route) float64 { return float64(r.Ns.Load()) / nsPerSecond })},
	{"ensemble_route_share", "Share of requests that an alternative of a step gets now, from 0 to 1", gauge, whereRouted, perRoute((*Route).Share)},
	{"ensemble_shadow_requests_total", "Copies of requests that the shadow of a step got, by the comparison of the responses", counter, whereShadow, each(shadowsOf)},
	{"ensemble_condition_rows_total", "Rows for which the condition of a step was evaluated, by its value", counter, whereChosen, each(conditionsOf)},
	{"ensemble_fan_out_requests_total", "Requests that a fan-out divided; of one inside another, the groups of items", counter, whereFanOut, perFanOut(func(f *FanOut) *atomic.Uint64 { return &f.Divided })},
	{"ensemble_fan_out_items_total", "Items that a fan-out made of them", counter, whereFanOut, perFanOut(func(f *FanOut) *atomic.Uint64 { return &f.Items })},
	{"ensemble_fan_out_groups_total", "Groups of items of equal shape that the steps inside of a fan-out executed", counter, whereFanOut, perFanOut(func(f *FanOut) *atomic.Uint64 { return &f.Groups })},
	{"ensemble_fallbacks_total", "Failures of a step after which the alternative, a model or the optional result, took its place", counter, whereFaults, each(replacementsOf)},
	{"ensemble_model_load_failures_total", "Failed loads of models", counter, always, ofServer(func(x *Metrics) float64 { return float64(x.failedLoads.Load()) })},
	{"ensemble_inflight_bytes", "Bytes of requests being received, executed and responded to now, without the memory that models allocate", gauge, withInFlight, ofServer(func(x *Metrics) float64 { return float64(x.inFlight.Bytes()) })},
	{"ensemble_inflight_limit_bytes", "Limit of the bytes in flight, 0 for no limit", gauge, withInFlight, ofServer(func(x *Metrics) float64 { return float64(x.inFlight.Limit()) })},
	{"ensemble_model_requests_running", "Requests in flight now that do not wait for an instance", gauge, whereLoaded, perModel(func(m *Model) float64 { return float64(m.measure().Running) })},
	{"ensemble_predicted_wait_seconds", "Predicted time that a request which arrives now waits for instances; of an ensemble, on the longest way through its steps", gauge, whereLoaded, perModel(func(m *Model) float64 { return m.measure().Wait.Seconds() })},
	{"ensemble_utilization_ratio", "Part of the instances that execute now; of an ensemble, that of its busiest step", gauge, whereLoaded, perModel(func(m *Model) float64 { return m.measure().Utilization })},
	{"ensemble_requests_queued", "Requests waiting for an instance now, of all models; a request to an ensemble counts once", gauge, withRequests, ofServer(func(x *Metrics) float64 {
		queued, _ := x.requests()
		return float64(queued)
	})},
	{"ensemble_requests_running", "Requests accepted and not answered now, without those that wait for an instance", gauge, withRequests, ofServer(func(x *Metrics) float64 {
		_, running := x.requests()
		return float64(running)
	})},
	{"ensemble_inflight_refusals_total", "Requests refused because of the bytes in flight or because the memory is full", counter, withInFlight, ofServer(func(x *Metrics) float64 { return float64(x.inFlight.Refused()) })},
	{"ensemble_unauthenticated_requests_total", "Requests refused because their token or certificate was missing or wrong", counter, withRefusals, ofServer(func(x *Metrics) float64 {
		n, _, _ := x.refusals()
		return float64(n)
	})},
	{"ensemble_client_refusals_total", "Requests refused because their client was over its share, of each client with a weight, of the first 32 others, and of the rest as (others)", counter, withClients, clientRefusals},
	{"ensemble_forbidden_requests_total", "Requests refused because their sender may not use what they want", counter, withRefusals, ofServer(func(x *Metrics) float64 {
		_, n, _ := x.refusals()
		return float64(n)
	})},
	{"ensemble_undecided_requests_total", "Requests refused because the keys of their token's issuer could not be had", counter, withRefusals, ofServer(func(x *Metrics) float64 {
		_, _, n := x.refusals()
		return float64(n)
	})},
	{"ensemble_queue_depth_max", "Maximum of requests that waited for an instance at the same time", gauge, always, perModel(func(m *Model) float64 { return float64(m.waiting.deepest.Load()) })},
	{"ensemble_batch_elements_total", "Elements that requests gave to batches of rows of different lengths", counter, wherePadded, perModel(func(m *Model) float64 { return float64(m.padded.elements.Load()) })},
	{"ensemble_batch_padding_elements_total", "Elements added to those batches to make their rows equally long", counter, wherePadded, perModel(func(m *Model) float64 { return float64(m.padded.padding.Load()) })},
	{"ensemble_copies_total", "Copies of tensors to, from, within and between devices", counter, whereCopied, perCopy(func(v *Copy) uint64 { return v.Count })},
	{"ensemble_copied_bytes_total", "Bytes of the copies of tensors to, from, within and between devices", counter, whereCopied, perCopy(func(v *Copy) uint64 { return v.Bytes })},
	{"ensemble_device_lost", "1 for a device that is lost until the server is restarted, else 0", gauge, withDevices, perDevice(func(u *DeviceUse) float64 {
		if u.Lost {
			return 1
		}
		return 0
	}, true)},
	{"ensemble_spills_total", "Allocations that got slower memory because a pool was full: pinned memory in place of a device's, ordinary in place of pinned", counter, withDevices, perDevice(func(u *DeviceUse) float64 { return float64(u.Spilled) }, false)},
	{"ensemble_repository_fetched_bytes_total", "Bytes of models fetched from buckets", counter, withFetches, ofServer(func(x *Metrics) float64 { return float64(x.fetchedBytes.Load()) })},
	{"ensemble_repository_fetch_seconds_total", "Seconds spent fetching models from buckets, summed over models", counter, withFetches, ofServer(func(x *Metrics) float64 { return time.Duration(x.fetchedNs.Load()).Seconds() })},
}), func(a, b family) int { return cmp.Compare(a.name, b.name) })

// When describes when the named family is exported, for the reference page.
func When(name string) string {
	if i := slices.IndexFunc(families, func(f family) bool { return f.name == name }); i >= 0 {
		return families[i].when.text
	}
	return ""
}

// scrape collects the metrics of one family after another.
type scrape struct {
	x      *Metrics
	a      *arena
	models []*Model
	f      *family
	list   []*dto.Metric // of f
}

func (c *scrape) number(v float64, labels []*dto.LabelPair) {
	c.list = append(c.list, c.a.number(c.f.kind, v, labels))
}

// distribution appends the histogram of a tally, none for nil.
func (c *scrape) distribution(t *tally, labels []*dto.LabelPair, seen *exemplars) {
	if t != nil {
		c.list = append(c.list, t.histogram(c.a, labels, seen))
	}
}

// with returns the model's labels and further ones, given as pairs of name and value.
func (s *series) with(pairs ...string) []*dto.LabelPair {
	list := slices.Grow(slices.Clone(s.labels), len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	slices.SortFunc(list, byName)
	return list
}

// withOne returns the model's labels and one more, of which there are few values.
func (s *series) withOne(name, value string) []*dto.LabelPair {
	key := [2]string{name, value}
	if s.more[key] == nil {
		s.more[key] = s.with(name, value)
	}
	return s.more[key]
}

// each returns a family's values of all models of which it is exported.
func each(add func(*scrape, *series, *Model)) func(*scrape) {
	return func(c *scrape) {
		for _, m := range c.models {
			if s := c.x.models[m]; c.f.when.model == nil || c.f.when.model(s, m) {
				add(c, s, m)
			}
		}
	}
}

func ofServer(value func(*Metrics) float64) func(*scrape) {
	return func(c *scrape) { c.number(value(c.x), nil) }
}

func perModel(value func(*Model) float64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) { c.number(value(m), s.labels) })
}

func micros(ns func(*Model) uint64) func(*scrape) {
	return perModel(func(m *Model) float64 { return float64(ns(m) / nsPerUs) })
}

func tallies(of func(*Model, *arena) *tally) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) { c.distribution(of(m, c.a), s.labels, nil) })
}

func quantiles(which observed) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		v := &dto.Metric{}
		if l := m.latencies.Load(); l != nil && l.summaries[which] != nil && l.summaries[which].Write(v) == nil {
			v.Label = s.labels
			c.list = append(c.list, v)
		}
	})
}

func firstResponses(c *scrape, s *series, m *Model) {
	if l := m.latencies.Load(); l != nil && l.first != nil {
		c.list = append(c.list, l.first.write(s.labels))
	}
}

// failuresOf appends the failed requests by reason. A failed ensemble request counts for itself and for the failed step,
// as Triton documents; only an ensemble fails for other reasons.
func failuresOf(c *scrape, s *series, m *Model) {
	for r := range numReasons {
		n := m.Failures[r].count.Load()
		if r == Other {
			n *= 2
		}
		c.number(float64(n), s.withOne("reason", r.String()))
	}
}

func outcomesOf(c *scrape, s *series, m *Model) {
	for o, n := range m.Outcomes() {
		c.number(float64(n), s.withOne("outcome", Outcome(o).String())) //nolint:gosec // they are few
	}
}

func refusalsOf(c *scrape, s *series, m *Model) {
	for r := range numRefusals {
		if n := m.refused[r].Load(); n > 0 {
			c.number(float64(n), s.withOne("reason", r.String()))
		}
	}
}

// phasesOf appends a histogram for each phase with a positive duration.
func phasesOf(c *scrape, s *series, m *Model) {
	for p := range numPhases {
		if t := m.phase(c.a, p); t != nil {
			var seen *exemplars
			if p == inTotal {
				seen = m.exemplars.Load()
			}
			c.distribution(t, s.withOne("phase", phaseNames[p]), seen)
		}
	}
}

func stepPhasesOf(c *scrape, s *series, m *Model) {
	for _, step := range all(&m.steps) {
		for p := range numPhases {
			if t := step.phase(c.a, p); t != nil {
				c.distribution(t, s.with("node", valid(step.name), "phase", phaseNames[p]), nil)
			}
		}
	}
}

func edgesOf(c *scrape, s *series, m *Model) {
	for _, e := range m.Carried() {
		for at, name := range placeNames {
			if n := e.Bytes(tensor.Kind(at)); n > 0 {
				c.number(float64(n), s.with("place", name, "tensor", valid(e.Tensor)))
			}
		}
	}
}

func perCopy(value func(*Copy) uint64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		for _, v := range m.Copies.List() {
			labels := s.with("tensor", valid(v.Tensor), "from", valid(v.From.String()), "to", valid(v.To.String()), "direction", v.Direction(), "reason", v.Reason.String())
			c.number(float64(value(&v)), labels)
		}
	})
}

// clientRefusals exports the requests of clients over their shares.
func clientRefusals(c *scrape) {
	c.x.clients(func(client string, n uint64) {
		name, value := "client", valid(client)
		c.number(float64(n), []*dto.LabelPair{{Name: &name, Value: &value}})
	})
}

// perDevice exports a value of each device, and of the pool of pinned memory unless only devices have it.
func perDevice(value func(*DeviceUse) float64, only bool) func(*scrape) {
	return func(c *scrape) {
		for _, u := range c.x.devices() {
			if only && u.Place.Kind != tensor.Device {
				continue
			}
			name, place := "place", valid(u.Place.String())
			c.number(value(&u), []*dto.LabelPair{{Name: &name, Value: &place}})
		}
	}
}

func perGPU(value func(*GPU) float64) func(*scrape) {
	return func(c *scrape) {
		for i := range c.x.gpus {
			if n := value(&c.x.gpus[i]); n >= 0 {
				name, uuid := "gpu_uuid", valid(c.x.gpus[i].UUID)
				c.number(n, []*dto.LabelPair{{Name: &name, Value: &uuid}})
			}
		}
	}
}
