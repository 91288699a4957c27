// Package telemetry counts what models do and exports the counts as Prometheus metrics.
package telemetry

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

var start = time.Now()

// Now returns a monotonic time in nanoseconds. Only differences within the process have a meaning.
func Now() int64 { return int64(time.Since(start)) }

// At returns the value of Now at time t.
func At(t time.Time) int64 { return int64(t.Sub(start)) }

// Epoch returns the wall-clock time, in nanoseconds since 1970, at which Now was 0.
func Epoch() int64 { return time.Now().UnixNano() - Now() }

// Reason is why a request failed: the reason label of nv_inference_request_failure.
type Reason uint8

// The reasons, as Triton names them.
const (
	Rejected Reason = iota // refused before it was queued, or expired there
	Canceled
	Backend // the model's execution failed
	Other
	numReasons
)

var reasonNames = [numReasons]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// String returns the label's value.
func (r Reason) String() string { return reasonNames[r] }

// Times are the times of one executed batch, on the clock of Now. Those of a batch at a device are the host's, which put it into a stream,
// until the device has executed it; see Measured.
type Times struct {
	// Start is when an instance started the batch, InputEnd when its inputs were gathered, InferEnd when the model
	// returned, End when the outputs were passed on.
	Start, InputEnd, InferEnd, End int64
}

// Duration counts events and sums their durations in nanoseconds.
type Duration struct{ count, ns atomic.Uint64 }

// Add counts n events with a total of ns nanoseconds. A negative duration counts as 0.
func (d *Duration) Add(n uint64, ns int64) {
	d.count.Add(n)
	d.ns.Add(uint64(max(ns, 0)))
}

// Load returns the count and the nanoseconds.
func (d *Duration) Load() (count, ns uint64) { return d.count.Load(), d.ns.Load() }

// Phases counts executions and sums their durations by phase, in nanoseconds.
type Phases struct{ count, input, infer, output atomic.Uint64 }

// Sums are the phases of all steps of one ensemble request.
type Sums struct{ Input, Infer, Output int64 }

func (p *Phases) add(s Sums) {
	p.count.Add(1)
	addNs(&p.input, s.Input)
	addNs(&p.infer, s.Infer)
	addNs(&p.output, s.Output)
}

func (t *Times) sums() Sums {
	return Sums{t.InputEnd - t.Start, t.InferEnd - t.InputEnd, t.End - t.InferEnd}
}

// addNs adds a duration. It skips the write for 0, as in batches of one, which are neither gathered nor scattered.
// A negative duration counts as 0.
func addNs(sum *atomic.Uint64, ns int64) {
	if ns > 0 {
		sum.Add(uint64(ns))
	}
}

// Totals is a snapshot of Phases.
type Totals struct {
	Count uint64 // the number of executions, or of requests
	// InputNs is the time of gathering inputs, InferNs of the model, OutputNs of passing outputs on.
	InputNs, InferNs, OutputNs uint64
}

// addTo adds the values of p, which may be nil, to t.
func (p *Phases) addTo(t *Totals) {
	if p != nil {
		t.Count += p.count.Load()
		t.InputNs += p.input.Load()
		t.InferNs += p.infer.Load()
		t.OutputNs += p.output.Load()
	}
}

// Model holds the counters of one model version. Its methods are safe for concurrent use and allocate nothing once
// every batch size has been seen.
type Model struct {
	Name      string
	Namespace string // exported by Metrics with namespaces only
	Version   int64

	Failures [numReasons]Duration
	// Hits counts the requests with a cached response and the time of their lookups, Misses the computed requests
	// that were looked up in the response cache and the time spent.
	Hits, Misses Duration
	Copies       Ledger       // counts the copies of tensors between places
	LoadNs       atomic.Int64 // duration of the last load
	// Evictions counts how often the model was unloaded from a full device, Reloads how often it was loaded again for a request.
	Evictions, Reloads atomic.Uint64
	// Stuck counts the executions that took longer than the watchdog allows, Recycled the instances whose process it has ended.
	Stuck, Recycled atomic.Uint64

	requests  requests
	batches   batches
	waiting   waiting
	padded    padded
	slack     zeroed // seconds left until deadlines; late requests have none
	predicted summed // the time that requests with deadlines took, over the predicted one
	due       [numOutcomes]atomic.Uint64
	refused   [numRefusals]atomic.Uint64
	load      atomic.Pointer[func() Load]
	latencies atomic.Pointer[latencies] // nil when no summary is exported
	exemplars atomic.Pointer[exemplars] // nil without retained traces
	steps     atomic.Pointer[[]*Step]   // of an ensemble
	edges     atomic.Pointer[[]*Edge]   // of an ensemble
	routes    atomic.Pointer[[]*Route]  // of an ensemble
	shadows   atomic.Pointer[[]*Shadow] // of an ensemble
	flows     flows                     // of an ensemble
	setup     atomic.Pointer[Setup]
	measuring measuring // batches at devices
}

// requests counts the successful requests of a model.
type requests struct {
	// compute counts those of batches with several members, and their phases. Each member counts the time of the
	// whole batch, as in Triton.
	compute Phases
	// total is the duration of an ensemble's successful requests in ns. Of other models it is the duration of cache
	// hits only: the rest is the sum of the queue and the phases.
	total    atomic.Uint64
	queue    atomic.Uint64 // ns in the queue
	spread   spread
	last     atomic.Int64 // last success, on the clock of Now
	ensemble atomic.Bool  // they are counted by SucceededSum
}

// waiting counts the requests that wait for an instance.
type waiting struct {
	pending, deepest atomic.Int64 // deepest is the maximum of pending
	depth            summed       // pending at each arrival
}

// padded counts batches of rows of different lengths.
type padded struct {
	elements, padding atomic.Uint64 // of the requests, and the added ones
	share             zeroed        // of padding in each batch
}

// batchSizes is how many batch sizes have preallocated counters. Larger sizes are added when they first occur.
const batchSizes = 64

// batches counts executions by their rows.
type batches struct {
	several [batchSizes]atomic.Pointer[Phases]
	// alone counts the batches of one successful request. They are frequent and their cost matters most, so they
	// are counted once; a scrape adds them to both views.
	alone [batchSizes]atomic.Pointer[Phases]
	large atomic.Pointer[map[int]*Phases]
	rows  atomic.Uint64 // of the others than alone
}

// Configure sets the model's Setup, which the next Metrics.Add uses.
func (m *Model) Configure(s *Setup) { m.setup.Store(s) }

// Responded records the latency of the first response of a decoupled model's request.
//
// hot: one atomic load when the latency is not exported.
func (m *Model) Responded(ns int64) {
	if l := m.latencies.Load(); l != nil && l.first != nil {
		l.first.observe(float64(max(ns, 0)))
	}
}

// Queued adds n to the requests that wait for an instance; n is negative when they leave the queue.
//
// hot: two atomic adds and one read when they come, one add when they go.
func (m *Model) Queued(n int64) {
	now := m.waiting.pending.Add(n)
	if n <= 0 || now <= 0 {
		return
	}
	for old := m.waiting.deepest.Load(); now > old && !m.waiting.deepest.CompareAndSwap(old, now); {
		old = m.waiting.deepest.Load()
	}
	m.waiting.depth.add(depthScale, float64(now), now)
}

// Hit counts a request with a cached response: when it arrived and was completed, and the nanoseconds of the lookup.
//
// hot: atomic adds.
func (m *Model) Hit(came, now, ns int64) {
	m.Hits.Add(1, ns)
	addNs(&m.requests.total, now-came)
	m.requests.spread.by.phase(inTotal, now-came, false)
	m.requests.seen(now)
	if l := m.latencies.Load(); l != nil {
		l.observe(requestLatency, now-came)
		l.observe(hitLatency, ns)
	}
}

// Missed counts a computed request without a cached response: the nanoseconds of the lookup and of storing the
// response.
//
// hot: atomic adds.
func (m *Model) Missed(ns int64) {
	m.Misses.Add(1, ns)
	if l := m.latencies.Load(); l != nil {
		l.observe(missLatency, ns)
	}
}

// Responses returns the number of successful requests, including cache hits.
func (m *Model) Responses() uint64 { return m.Requests().Count + m.Hits.count.Load() }

// Load is how much a version has to do now.
type Load struct {
	// Running is its requests in flight that do not wait for an instance.
	Running int64
	// Wait is how long a request is predicted to wait for instances.
	Wait time.Duration
	// Utilization is the part of its instances that execute.
	Utilization float64
}

// SetLoad sets the function that measures the load of the version, for scrapes.
func (m *Model) SetLoad(measure func() Load) { m.load.Store(&measure) }

// measure returns the load of the version, if it is known.
func (m *Model) measure() (l Load) {
	if f := m.load.Load(); f != nil {
		return (*f)()
	}
	return l
}

// Pending returns how many requests wait for an instance.
func (m *Model) Pending() int64 { return m.waiting.pending.Load() }

// Alone counts a batch of one successful request.
//
// hot: atomic adds.
func (m *Model) Alone(rows int, enqueued int64, t *Times) {
	if rows < 0 || rows >= batchSizes {
		m.Executed(rows, t)
		m.Succeeded(rows, enqueued, t)
		return
	}
	phases(&m.batches.alone[rows]).add(t.sums())
	m.waited(enqueued, t)
}

// Executed counts any other executed batch.
//
// hot: atomic adds.
func (m *Model) Executed(rows int, t *Times) {
	if rows < 0 || rows >= batchSizes {
		m.batches.largeBatch(rows).add(t.sums())
	} else {
		phases(&m.batches.several[rows]).add(t.sums())
	}
}

// Succeeded counts one successful request: its rows, the times of its batch, and when it was enqueued.
//
// hot: atomic adds.
func (m *Model) Succeeded(rows int, enqueued int64, t *Times) {
	m.batches.rows.Add(uint64(rows))
	m.requests.compute.add(t.sums())
	m.waited(enqueued, t)
}

func (m *Model) waited(enqueued int64, t *Times) {
	r := &m.requests
	addNs(&r.queue, t.Start-enqueued)
	r.spread.observe(enqueued, t, false)
	r.seen(t.End)
	if l := m.latencies.Load(); l != nil {
		l.request(t.End-enqueued, t.Start-enqueued, t.sums())
	}
}

// seen records when the last request succeeded, with a resolution of a millisecond: a store for each request would
// cost more than most counters.
func (r *requests) seen(now int64) {
	if now-r.last.Load() >= int64(time.Millisecond) {
		r.last.Store(now)
	}
}

// Failed counts one request that failed after ns nanoseconds.
func (m *Model) Failed(why Reason, ns int64) { m.Failures[why].Add(1, ns) }

// Padded counts one batch of rows with different lengths: the elements of the requests, and those added to make the
// rows equally long.
//
// hot: atomic adds.
func (m *Model) Padded(elements, padding int64) {
	m.padded.elements.Add(uint64(elements))
	addNs(&m.padded.padding, padding)
	share := float64(padding) / float64(elements+padding)
	m.padded.share.addOrZero(shareScale, share, int64(share*ppm))
}

// Padding returns the elements of padded batches, and those added to them.
func (m *Model) Padding() (elements, padding uint64) {
	return m.padded.elements.Load(), m.padded.padding.Load()
}

// SucceededSum counts one ensemble request with the summed phases of its steps, as an execution of its rows. It has
// no queue time: that belongs to its steps.
//
// hot: atomic adds.
func (m *Model) SucceededSum(rows int, start, end int64, s *Sums) {
	r := &m.requests
	if rows >= 0 && rows < batchSizes {
		phases(&m.batches.alone[rows]).add(*s)
	} else {
		m.batches.rows.Add(uint64(rows))
		r.compute.add(*s)
		m.batches.largeBatch(rows).add(*s)
	}
	if !r.ensemble.Load() {
		r.ensemble.Store(true)
	}
	addNs(&r.total, end-start)
	r.spread.by.phase(inInput, s.Input, false)
	r.spread.by.phase(inInfer, s.Infer, false)
	r.spread.by.phase(inOutput, s.Output, false)
	r.spread.by.phase(inTotal, end-start, false)
	r.seen(end)
	if l := m.latencies.Load(); l != nil {
		l.request(end-start, 0, *s)
	}
}

// Rows returns the number of batch rows inferred.
func (m *Model) Rows() uint64 {
	m.Settle()
	n := m.batches.rows.Load()
	for rows := range m.batches.alone {
		if p := m.batches.alone[rows].Load(); p != nil {
			n += uint64(rows) * p.count.Load()
		}
	}
	return n
}

// Requests returns the number and the phases of successful computed requests.
func (m *Model) Requests() (t Totals) {
	m.Settle()
	m.requests.compute.addTo(&t)
	for rows := range m.batches.alone {
		m.batches.alone[rows].Load().addTo(&t)
	}
	return t
}

// TotalNs returns the total duration of successful requests in nanoseconds.
func (m *Model) TotalNs() uint64 {
	if m.requests.ensemble.Load() {
		return m.requests.total.Load()
	}
	r := m.Requests()
	return m.requests.total.Load() + m.QueueNs() + r.InputNs + r.InferNs + r.OutputNs
}

// QueueNs returns the nanoseconds that successful requests waited for an instance.
func (m *Model) QueueNs() uint64 {
	m.Settle()
	return m.requests.queue.Load()
}

// Executions returns the number of executed batches.
func (m *Model) Executions() (n uint64) {
	m.Batches(func(_ int, t Totals) bool { n += t.Count; return true })
	return n
}

// LastInference returns when the last request succeeded, in milliseconds since the epoch, or 0.
func (m *Model) LastInference() uint64 {
	ns := m.requests.last.Load()
	if ns == 0 {
		return 0
	}
	now := time.Now() // one reading of both clocks: however late this runs, they agree
	return uint64(now.Add(time.Duration(ns) - now.Sub(start)).UnixMilli())
}

// phases returns *p and allocates it on first use.
func phases(p *atomic.Pointer[Phases]) *Phases {
	if x := p.Load(); x != nil {
		return x
	}
	p.CompareAndSwap(nil, new(Phases))
	return p.Load()
}

// largeBatch copies the map on the first batch of a size, so that readers need no lock.
func (b *batches) largeBatch(rows int) *Phases {
	for {
		old := b.large.Load()
		if old != nil && (*old)[rows] != nil {
			return (*old)[rows]
		}
		grown := map[int]*Phases{rows: new(Phases)}
		if old != nil {
			maps.Copy(grown, *old)
		}
		if b.large.CompareAndSwap(old, &grown) {
			return grown[rows]
		}
	}
}

// Batches calls yield with the phases of every executed batch size, in ascending order.
func (m *Model) Batches(yield func(rows int, t Totals) bool) {
	m.Settle()
	for rows := range batchSizes {
		several, alone := m.batches.several[rows].Load(), m.batches.alone[rows].Load()
		var t Totals
		several.addTo(&t)
		alone.addTo(&t)
		if (several != nil || alone != nil) && !yield(rows, t) {
			return
		}
	}
	large := m.batches.large.Load()
	if large == nil {
		return
	}
	for _, rows := range slices.Sorted(maps.Keys(*large)) {
		var t Totals
		if (*large)[rows].addTo(&t); !yield(rows, t) {
			return
		}
	}
}
