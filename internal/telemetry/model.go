package telemetry

import (
	"maps"
	"sync/atomic"
	"time"
)

// Reason says why a request failed, as the reason label of nv_inference_request_failure.
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

// Times are the moments of one executed batch, on the clock of Now.
type Times struct {
	// Start is when an instance took the batch, InputEnd when its inputs were
	// gathered, InferEnd when the model was done, End when the outputs were handed on.
	Start, InputEnd, InferEnd, End int64
}

// Duration is a number of events and the nanoseconds they took together.
type Duration struct {
	count, ns atomic.Uint64
}

// Add counts n events of ns nanoseconds in all; time that ran backwards counts as none.
func (d *Duration) Add(n uint64, ns int64) {
	d.count.Add(n)
	d.ns.Add(uint64(max(ns, 0)))
}

// Load returns the count and the nanoseconds.
func (d *Duration) Load() (count, ns uint64) { return d.count.Load(), d.ns.Load() }

// Phases are a number of executions and the nanoseconds they took by phase.
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

// addNs skips the write when there is nothing to add, as for batches of one, which
// are neither gathered nor scattered. Time that ran backwards counts as none.
func addNs(sum *atomic.Uint64, ns int64) {
	if ns > 0 {
		sum.Add(uint64(ns))
	}
}

// Totals are what Phases held at one moment.
type Totals struct {
	// Count is the number of executions, or of requests.
	Count uint64
	// InputNs were spent gathering inputs, InferNs in the model, OutputNs handing
	// outputs on.
	InputNs, InferNs, OutputNs uint64
}

// addTo adds what p holds to t.
func (p *Phases) addTo(t *Totals) {
	t.Count += p.count.Load()
	t.InputNs += p.input.Load()
	t.InferNs += p.infer.Load()
	t.OutputNs += p.output.Load()
}

// batchSizes is how many batch sizes have counters of their own from the start;
// larger ones are added when they first appear.
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

	// compute counts the successful requests of batches of several, and their phases:
	// each member of a batch counts the whole batch's time, as in Triton.
	compute Phases
	// total is the ns of an ensemble's successful requests. Of other models it is that
	// of hits of the cache alone: the rest is the sum of the queue and the phases.
	total     atomic.Uint64
	queue     atomic.Uint64             // ns of successful requests in the queue
	latencies atomic.Pointer[latencies] // nil when no summary is exported
	spread    spread
	rows      atomic.Uint64
	last      atomic.Int64 // ns on the clock of Now
	pending   atomic.Int64
	// elements and padding are those of padded batches: their own and what was added.
	elements, padding atomic.Uint64

	load    atomic.Int64 // ns that loading took, the last time
	batches [batchSizes]atomic.Pointer[Phases]
	// alone counts the batches that were one successful request, by their rows. They
	// are the most where a nanosecond matters most, so they are counted once and added
	// to both views when somebody looks.
	alone [batchSizes]atomic.Pointer[Phases]
	large atomic.Pointer[map[int]*Phases]

	hits, misses Duration
	deepest      atomic.Int64 // the most that were pending at once
	depth        depths
	ensemble     atomic.Bool // requests are counted by SucceededSum
	// slack are the seconds that were left to deadlines, slackNs their sum; late are
	// the requests to which none was.
	slack         dist
	slackNs, late atomic.Uint64
	// padShare are the shares of padding in batches, padPPM their sum; unpadded are
	// the batches without any.
	padShare         dist
	padPPM, unpadded atomic.Uint64
	refused          [numRefusals]atomic.Uint64
	graph            atomic.Pointer[graph]     // nil of a model that is no ensemble
	exemplars        atomic.Pointer[exemplars] // nil without traces that are kept

	setup atomic.Pointer[Setup]
}

// Configure says what the model's configuration says about its metrics; the next
// Metrics.Add heeds it.
func (m *Model) Configure(s *Setup) { m.setup.Store(s) }

// Responded notes that a request of a decoupled model has its first response.
//
// hot: one read when nobody asks.
func (m *Model) Responded(ns int64) {
	if l := m.latencies.Load(); l != nil && l.first != nil {
		l.first.observe(ns)
	}
}

// Queued adds n to the requests waiting for an instance.
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

// Deepest returns the most requests that ever waited for an instance at once.
func (m *Model) Deepest() int64 { return m.deepest.Load() }

// Hit counts one request that the response cache answered: when it came and was
// answered, and the nanoseconds that finding the answer took.
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

// Missed counts one request that the response cache could not answer and that was
// computed: the nanoseconds that looking for the answer and keeping it took.
//
// hot: atomic adds.
func (m *Model) Missed(ns int64) {
	m.misses.Add(1, ns)
	if l := m.latencies.Load(); l != nil {
		l.observe(missLatency, ns)
	}
}

// Hits returns the requests that the response cache answered.
func (m *Model) Hits() (count, ns uint64) { return m.hits.Load() }

// Misses returns the computed requests for which the response cache had been asked.
func (m *Model) Misses() (count, ns uint64) { return m.misses.Load() }

// Answered returns the number of successful requests, hits of the cache included.
func (m *Model) Responses() uint64 {
	hits, _ := m.hits.Load()
	return m.Requests().Count + hits
}

// Pending returns how many requests wait for an instance.
func (m *Model) Pending() int64 { return m.pending.Load() }

// Alone counts a batch that was one request, which succeeded.
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

// Executed counts one executed batch of any other kind.
//
// hot: atomic adds.
func (m *Model) Executed(rows int, t *Times) { m.batch(rows).add(1, t) }

// Succeeded counts one request: its rows, the times of its batch, and when it was
// enqueued.
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

// seen notes when the last request succeeded, to the millisecond that is reported: a
// store each time would cost more than most counters.
func (m *Model) seen(now int64) {
	if now-m.last.Load() >= int64(time.Millisecond) {
		m.last.Store(now)
	}
}

// Failed counts one request that failed after ns nanoseconds.
func (m *Model) Failed(why Reason, ns int64) { m.Failures[why].Add(1, ns) }

// failures returns the failed requests as nv_inference_request_failure counts them: one
// to an ensemble, which alone fails for other reasons, counts for itself and for the
// step that failed, as Triton documents it.
func (m *Model) failures(why Reason) uint64 {
	n, _ := m.Failures[why].Load()
	if why == Other {
		n *= 2
	}
	return n
}

// Padded counts one batch of rows of different lengths: the elements that the requests
// gave, and those added to make the rows equally long.
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

// SucceededSum counts one ensemble request with the summed phases of its steps, as an
// execution of its rows. It has no time in a queue, which is its steps' alone.
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

// Loaded notes that loading took ns nanoseconds.
func (m *Model) Loaded(ns int64) { m.load.Store(ns) }

// LoadNs returns the nanoseconds that loading took, the last time.
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

// Requests returns the successful requests that were computed, and their phases.
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

// TotalNs returns the nanoseconds that successful requests took.
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

// phases returns what p points to, made when it is first needed.
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
