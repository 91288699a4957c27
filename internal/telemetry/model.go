package telemetry

import (
	"maps"
	"sync/atomic"
	"time"
)

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

// Times are the times of one executed batch, on the clock of Now.
type Times struct {
	// Start is when an instance started the batch, InputEnd when its inputs were gathered, InferEnd when the model
	// returned, End when the outputs were passed on.
	Start, InputEnd, InferEnd, End int64
}

// Duration counts events and sums their durations in nanoseconds.
type Duration struct {
	count, ns atomic.Uint64
}

// Add counts n events with a total of ns nanoseconds. A negative duration counts as 0.
func (d *Duration) Add(n uint64, ns int64) {
	d.count.Add(n)
	d.ns.Add(uint64(max(ns, 0)))
}

// Load returns the count and the nanoseconds.
func (d *Duration) Load() (count, ns uint64) { return d.count.Load(), d.ns.Load() }

// Phases counts executions and sums their durations by phase, in nanoseconds.
type Phases struct {
	count, input, infer, output atomic.Uint64
}

// add counts n executions with the given times.
func (p *Phases) add(n uint64, t *Times) {
	p.count.Add(n)
	addNs(&p.input, t.InputEnd-t.Start)
	addNs(&p.infer, t.InferEnd-t.InputEnd)
	addNs(&p.output, t.End-t.InferEnd)
}

// addSums counts one execution with the given sums.
func (p *Phases) addSums(s *Sums) {
	p.count.Add(1)
	addNs(&p.input, s.Input)
	addNs(&p.infer, s.Infer)
	addNs(&p.output, s.Output)
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
	// Count is the number of executions, or of requests.
	Count uint64
	// InputNs is the time of gathering inputs, InferNs of the model, OutputNs of passing outputs on.
	InputNs, InferNs, OutputNs uint64
}

// addTo adds the values of p to t.
func (p *Phases) addTo(t *Totals) {
	t.Count += p.count.Load()
	t.InputNs += p.input.Load()
	t.InferNs += p.infer.Load()
	t.OutputNs += p.output.Load()
}

// batchSizes is how many batch sizes have preallocated counters. Larger sizes are added when they first occur.
const batchSizes = 64

// Model holds the counters of one model version. Its methods are safe for
// concurrent use and allocate nothing once every batch size has been seen.
type Model struct {
	Name string
	// Namespace is exported by Metrics with namespaces only.
	Namespace string
	Version   int64

	Failures [numReasons]Duration
	// Moves counts the copies of tensors between places.
	Moves Ledger

	// compute counts the successful requests of batches with several members, and their phases. Each member counts
	// the time of the whole batch, as in Triton.
	compute Phases
	// total is the duration of an ensemble's successful requests in ns. Of other models it is the duration of cache
	// hits only: the rest is the sum of the queue and the phases.
	total     atomic.Uint64
	queue     atomic.Uint64             // ns of successful requests in the queue
	latencies atomic.Pointer[latencies] // nil when no summary is exported
	spread    spread
	rows      atomic.Uint64
	last      atomic.Int64 // last success, on the clock of Now
	pending   atomic.Int64
	// elements and padding count the elements of padded batches and the added ones.
	elements, padding atomic.Uint64

	load    atomic.Int64 // ns of the last load
	batches [batchSizes]atomic.Pointer[Phases]
	// alone counts the batches of one successful request, by their rows. They are frequent and their cost matters
	// most, so they are counted once; a scrape adds them to both views.
	alone [batchSizes]atomic.Pointer[Phases]
	large atomic.Pointer[map[int]*Phases]

	hits, misses Duration
	deepest      atomic.Int64 // maximum of pending
	depth        depths
	ensemble     atomic.Bool // requests are counted by SucceededSum
	// slack is the distribution of the seconds left until deadlines and slackNs their sum; late counts the requests
	// that exceeded theirs.
	slack         dist
	slackNs, late atomic.Uint64
	// padShare is the distribution of the share of padding in batches and padPPM its sum; unpadded counts the
	// batches without padding.
	padShare         dist
	padPPM, unpadded atomic.Uint64
	refused          [numRefusals]atomic.Uint64
	graph            atomic.Pointer[graph]     // nil for a model that is not an ensemble
	exemplars        atomic.Pointer[exemplars] // nil without retained traces

	setup atomic.Pointer[Setup]
}

// Configure sets the model's Setup, which the next Metrics.Add uses.
func (m *Model) Configure(s *Setup) { m.setup.Store(s) }

// Responded records the latency of the first response of a decoupled model's request.
//
// hot: one atomic load when the latency is not exported.
func (m *Model) Responded(ns int64) {
	if l := m.latencies.Load(); l != nil && l.first != nil {
		l.first.observe(ns)
	}
}

// Queued adds n to the requests that wait for an instance; n is negative when they leave the queue.
//
// hot: two atomic adds and one read when they come, one add when they go.
func (m *Model) Queued(n int64) {
	now := m.pending.Add(n)
	if n <= 0 {
		return
	}
	if now > m.deepest.Load() {
		m.deepen(now)
	}
	if now > 0 {
		m.depth.observe(depthScale, float64(now))
		m.depth.sum.Add(uint64(now))
	}
}

func (m *Model) deepen(n int64) {
	for old := m.deepest.Load(); n > old && !m.deepest.CompareAndSwap(old, n); old = m.deepest.Load() {
	}
}

// Deepest returns the maximum number of requests that waited for an instance at the same time.
func (m *Model) Deepest() int64 { return m.deepest.Load() }

// Hit counts a request with a cached response: when it arrived and was completed, and the nanoseconds of the
// lookup.
//
// hot: atomic adds.
func (m *Model) Hit(came, now, ns int64) {
	m.hits.Add(1, ns)
	addNs(&m.total, now-came)
	m.spread.phases().phase(inTotal, now-came)
	m.seen(now)
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
	m.misses.Add(1, ns)
	if l := m.latencies.Load(); l != nil {
		l.observe(missLatency, ns)
	}
}

// Hits returns the number of requests with a cached response, and the time of their lookups.
func (m *Model) Hits() (count, ns uint64) { return m.hits.Load() }

// Misses returns the number of computed requests that were looked up in the response cache, and the time spent.
func (m *Model) Misses() (count, ns uint64) { return m.misses.Load() }

// Responses returns the number of successful requests, including cache hits.
func (m *Model) Responses() uint64 {
	hits, _ := m.hits.Load()
	return m.Requests().Count + hits
}

// Pending returns how many requests wait for an instance.
func (m *Model) Pending() int64 { return m.pending.Load() }

// Alone counts a batch of one successful request.
//
// hot: atomic adds.
func (m *Model) Alone(rows int, enqueued int64, t *Times) {
	if rows < 0 || rows >= batchSizes {
		m.Executed(rows, t)
		m.Succeeded(rows, enqueued, t)
		return
	}
	phases(&m.alone[rows]).add(1, t)
	m.waited(enqueued, t)
}

// Executed counts any other executed batch.
//
// hot: atomic adds.
func (m *Model) Executed(rows int, t *Times) { m.batch(rows).add(1, t) }

// Succeeded counts one successful request: its rows, the times of its batch, and when it was enqueued.
//
// hot: atomic adds.
func (m *Model) Succeeded(rows int, enqueued int64, t *Times) {
	m.rows.Add(uint64(rows))
	m.compute.add(1, t)
	m.waited(enqueued, t)
}

// waited counts the time of one successful request.
func (m *Model) waited(enqueued int64, t *Times) {
	addNs(&m.queue, t.Start-enqueued)
	m.spread.observe(enqueued, t)
	m.seen(t.End)
	if l := m.latencies.Load(); l != nil {
		l.request(t.End-enqueued, t.Start-enqueued, t.InputEnd-t.Start, t.InferEnd-t.InputEnd, t.End-t.InferEnd)
	}
}

// seen records when the last request succeeded, with a resolution of a millisecond: a store for each request would
// cost more than most counters.
func (m *Model) seen(now int64) {
	if now-m.last.Load() >= int64(time.Millisecond) {
		m.last.Store(now)
	}
}

// Failed counts one request that failed after ns nanoseconds.
func (m *Model) Failed(why Reason, ns int64) { m.Failures[why].Add(1, ns) }

// failures returns the failed requests of nv_inference_request_failure. A failed ensemble request counts for itself
// and for the failed step, as Triton documents; only an ensemble fails for other reasons.
func (m *Model) failures(why Reason) uint64 {
	n, _ := m.Failures[why].Load()
	if why == Other {
		n *= 2
	}
	return n
}

// Padded counts one batch of rows with different lengths: the elements of the requests, and those added to make the
// rows equally long.
//
// hot: atomic adds.
func (m *Model) Padded(elements, padding int64) {
	m.elements.Add(uint64(elements))
	if padding <= 0 {
		m.unpadded.Add(1)
		return
	}
	m.padding.Add(uint64(padding))
	share := float64(padding) / float64(elements+padding)
	m.padShare.observe(shareScale, share)
	m.padPPM.Add(uint64(share * ppm))
}

// Padding returns the elements of padded batches, and those added to them.
func (m *Model) Padding() (elements, padding uint64) { return m.elements.Load(), m.padding.Load() }

// Sums are the phases of all steps of one ensemble request.
type Sums struct {
	Input, Infer, Output int64
}

// SucceededSum counts one ensemble request with the summed phases of its steps, as an execution of its rows. It has
// no queue time: that belongs to its steps.
//
// hot: atomic adds.
func (m *Model) SucceededSum(rows int, start, end int64, s *Sums) {
	if rows >= 0 && rows < batchSizes {
		phases(&m.alone[rows]).addSums(s)
	} else {
		m.rows.Add(uint64(rows))
		m.compute.addSums(s)
		m.largeBatch(rows).addSums(s)
	}
	if !m.ensemble.Load() {
		m.ensemble.Store(true)
	}
	addNs(&m.total, end-start)
	by := m.spread.phases()
	by.phase(inInput, s.Input)
	by.phase(inInfer, s.Infer)
	by.phase(inOutput, s.Output)
	by.phase(inTotal, end-start)
	m.seen(end)
	if l := m.latencies.Load(); l != nil {
		l.request(end-start, 0, s.Input, s.Infer, s.Output)
	}
}

// Loaded records the duration of a load in nanoseconds.
func (m *Model) Loaded(ns int64) { m.load.Store(ns) }

// LoadNs returns the duration of the last load in nanoseconds.
func (m *Model) LoadNs() int64 { return m.load.Load() }

// Rows returns the number of batch rows inferred.
func (m *Model) Rows() uint64 {
	n := m.rows.Load()
	for rows := range m.alone {
		if p := m.alone[rows].Load(); p != nil {
			n += uint64(rows) * p.count.Load()
		}
	}
	return n
}

// Requests returns the number and the phases of successful computed requests.
func (m *Model) Requests() Totals {
	var t Totals
	m.compute.addTo(&t)
	for rows := range m.alone {
		if p := m.alone[rows].Load(); p != nil {
			p.addTo(&t)
		}
	}
	return t
}

// TotalNs returns the total duration of successful requests in nanoseconds.
func (m *Model) TotalNs() uint64 {
	if m.ensemble.Load() {
		return m.total.Load()
	}
	r := m.Requests()
	return m.total.Load() + m.queue.Load() + r.InputNs + r.InferNs + r.OutputNs
}

// QueueNs returns the nanoseconds that successful requests waited for an instance.
func (m *Model) QueueNs() uint64 { return m.queue.Load() }

// Executions returns the number of executed batches.
func (m *Model) Executions() uint64 {
	n := uint64(0)
	m.Batches(func(_ int, t Totals) bool { n += t.Count; return true })
	return n
}

// LastInference returns when the last request succeeded, in milliseconds since the
// epoch, or 0.
func (m *Model) LastInference() uint64 {
	ns := m.last.Load()
	if ns == 0 {
		return 0
	}
	now := time.Now() // one reading of both clocks: however late this runs, they agree
	return uint64(now.Add(time.Duration(ns) - now.Sub(start)).UnixMilli())
}

func (m *Model) batch(rows int) *Phases {
	if rows < 0 || rows >= batchSizes {
		return m.largeBatch(rows)
	}
	return phases(&m.batches[rows])
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
func (m *Model) largeBatch(rows int) *Phases {
	for {
		old := m.large.Load()
		if old != nil && (*old)[rows] != nil {
			return (*old)[rows]
		}
		grown := map[int]*Phases{rows: new(Phases)}
		if old != nil {
			maps.Copy(grown, *old)
		}
		if m.large.CompareAndSwap(old, &grown) {
			return grown[rows]
		}
	}
}

// Batches calls yield with the phases of every executed batch size, in ascending order.
func (m *Model) Batches(yield func(rows int, t Totals) bool) {
	for rows := range batchSizes {
		several, alone := m.batches[rows].Load(), m.alone[rows].Load()
		var t Totals
		if several != nil {
			several.addTo(&t)
		}
		if alone != nil {
			alone.addTo(&t)
		}
		if (several != nil || alone != nil) && !yield(rows, t) {
			return
		}
	}
	large := m.large.Load()
	if large == nil {
		return
	}
	for _, rows := range sortedKeys(*large) {
		var t Totals
		if (*large)[rows].addTo(&t); !yield(rows, t) {
			return
		}
	}
}
