package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// phase is a part of a request's duration.
type phase uint8

const (
	inQueue phase = iota
	inInput
	inInfer
	inOutput
	inTotal
	numPhases
)

var phaseNames = [numPhases]string{"queue", "input", "infer", "output", "total"}

// The units of sums: a second in nanoseconds, and a share of 1 in millionths.
const (
	nsPerSecond = 1e9
	ppm         = 1_000_000
)

func seconds(ns int64) float64 { return float64(ns) * (1 / nsPerSecond) }

// spread holds the distributions of the phases of requests. A phase of 0 ns is not counted: the exporter knows the
// number of requests.
type spread struct {
	// straight counts requests that were executed at once, without gathering or waiting: infer and total are equal.
	// Their cost matters most, so they are counted once; a scrape adds them to both.
	straight summed
	by       byPhase // all other requests
}

// byPhase are distributions by phase.
type byPhase [numPhases]summed

// observe counts one request. sum adds to the sums, for owners that do not store them elsewhere.
//
// hot: one atomic add for a straight one, else one for each phase that took time.
func (s *spread) observe(enqueued int64, t *Times, sum bool) {
	if t.Start <= enqueued && t.InputEnd <= t.Start && t.End <= t.InferEnd { // the execution was the whole duration
		if ns := t.InferEnd - t.Start; ns > 0 {
			s.straight.observe(secondsScale, seconds(ns))
			if sum {
				s.straight.sum.Add(uint64(ns))
			}
		}
		return
	}
	s.by.phase(inQueue, t.Start-enqueued, sum)
	s.by.phase(inInput, t.InputEnd-t.Start, sum)
	s.by.phase(inInfer, t.InferEnd-t.InputEnd, sum)
	s.by.phase(inOutput, t.End-t.InferEnd, sum)
	s.by.phase(inTotal, t.End-enqueued, sum)
}

// phase counts one phase.
func (b *byPhase) phase(p phase, ns int64, sum bool) {
	if ns > 0 {
		b[p].observe(secondsScale, seconds(ns))
		if sum {
			b[p].sum.Add(uint64(ns))
		}
	}
}

// tally returns the distribution of a phase of n requests, nil when it has none.
func (s *spread) tally(a *arena, p phase, n, ns uint64) *tally {
	straight := s.straight.used() && (p == inInfer || p == inTotal)
	if !straight && !s.by[p].used() {
		return nil
	}
	t := a.newTally(secondsScale)
	t.add(&s.by[p].dist)
	if straight {
		t.add(&s.straight.dist)
	}
	t.fill(n)
	t.sum = float64(ns) / nsPerSecond
	return t
}

// phase returns the distribution of a phase of the model's requests, nil when it has none.
func (m *Model) phase(a *arena, p phase) *tally {
	r := m.Requests()
	n, ns := r.Count, [numPhases]uint64{inQueue: m.QueueNs(), inInput: r.InputNs, inInfer: r.InferNs, inOutput: r.OutputNs}[p]
	if p == inTotal {
		n, ns = m.Responses(), m.TotalNs()
	}
	return m.requests.spread.tally(a, p, n, ns)
}

// Slack counts a request with a deadline: the nanoseconds left when its response was complete, 0 or less if it was
// late.
//
// hot: atomic adds.
func (m *Model) Slack(ns int64) { m.slack.addOrZero(slackScale, seconds(ns), ns) }

// Predicted counts a successful request with a deadline that took a time, and was expected to take another one as it arrived; both in ns.
//
// hot: atomic adds.
func (m *Model) Predicted(took, expected int64) {
	ratio := float64(max(took, 1)) / float64(max(expected, 1))
	m.predicted.add(ratioScale, ratio, int64(ratio*ppm))
}

// Outcome is how an ensemble's request with a deadline ended.
type Outcome uint8

// The outcomes.
const (
	InTime       Outcome = iota
	Late                 // the response came after the deadline, or there was none because the deadline had passed
	Refused              // because the response was expected too late, or a queue had no room
	Unsuccessful         // for another cause than time or room
	numOutcomes
)

var outcomes = [numOutcomes]string{"in_time", "late", "refused", "failed"}

// String returns the label's value.
func (o Outcome) String() string { return outcomes[o] }

// Due counts the end of a request with a deadline.
//
// hot: an atomic add.
func (m *Model) Due(o Outcome) { m.due[o].Add(1) }

// OutcomeCounts counts requests with a deadline, by Outcome.
type OutcomeCounts [numOutcomes]uint64

// Outcomes returns how many requests with a deadline ended in each way.
func (m *Model) Outcomes() (list OutcomeCounts) {
	for o := range m.due {
		list[o] = m.due[o].Load()
	}
	return list
}

// RefusalCounts counts requests that were not executed, by Refusal.
type RefusalCounts [numRefusals]uint64

// Refusals returns how many requests were not executed for each reason.
func (m *Model) Refusals() (list RefusalCounts) {
	for r := range m.refused {
		list[r] = m.refused[r].Load()
	}
	return list
}

func (m *Model) batchTally(a *arena) *tally {
	t := a.newTally(batchScale)
	m.Batches(func(rows int, b Totals) bool {
		t.put(float64(rows), b.Count)
		t.sum += float64(rows) * float64(b.Count)
		return true
	})
	return t
}

// Step holds the counters of one step of an ensemble. Its methods are safe for concurrent use and allocate nothing
// in the steady state.
type Step struct {
	spread
	name string // node name in the plan
	// brief steps count their total only. They belong to large graphs, whose steps cost less than counting all phases.
	brief bool
}

const briefGraph = 64 // the number of steps from which a graph's steps are brief

// Done counts one successful task of the step: when it was enqueued, and its times.
//
// hot: atomic adds.
func (s *Step) Done(enqueued int64, t *Times) {
	if s.brief {
		s.by.phase(inTotal, t.End-enqueued, true)
	} else {
		s.observe(enqueued, t, true)
	}
}

// phase returns the distribution of a phase, nil when the step has none.
func (s *Step) phase(a *arena, p phase) *tally {
	n, ns := s.by[inTotal].count()+s.straight.count(), s.by[p].sum.Load()
	if p == inInfer || p == inTotal {
		ns += s.straight.sum.Load()
	}
	return s.tally(a, p, n, ns)
}

// Edge counts the bytes of one tensor of an ensemble by the kind of place in which its producer, or the request,
// put it.
type Edge struct {
	Tensor string
	bytes  [tensor.Device + 1]atomic.Uint64
}

// Carried counts one tensor.
//
// hot: one atomic add.
func (e *Edge) Carried(t *tensor.Tensor) {
	if t.Present() {
		e.bytes[t.Buf.Place().Kind].Add(uint64(t.Len))
	}
}

// Bytes returns the bytes counted at a kind of place.
func (e *Edge) Bytes(at tensor.Kind) uint64 { return e.bytes[at].Load() }

var placeNames = [...]string{tensor.Host: "host", tensor.Pinned: "pinned", tensor.Device: "device"}

// PlaceName is the label's value of a kind of place.
func PlaceName(at tensor.Kind) string { return placeNames[at] }

// Steps returns the counters of the named steps and creates missing ones. It is called during loading: steps exist
// as long as the model.
func (m *Model) Steps(names []string) []*Step {
	return grow(&m.steps, names, func(s *Step) *string { return &s.name }, func(s *Step) { s.brief = len(names) > briefGraph })
}

// Edges returns the counters of the named tensors and creates missing ones, as Steps does.
func (m *Model) Edges(names []string) []*Edge {
	return grow(&m.edges, names, func(e *Edge) *string { return &e.Tensor }, func(*Edge) {})
}

// grow returns the named elements of a list and appends missing ones, which are neighbours in memory.
func grow[T any](p *atomic.Pointer[[]*T], names []string, name func(*T) *string, begin func(*T)) []*T {
	made := make([]T, len(names))
	for {
		old := p.Load()
		next, list, known := []*T(nil), make([]*T, len(names)), make(map[string]*T, len(names))
		if old != nil {
			next = slices.Clone(*old)
		}
		for _, x := range next {
			known[*name(x)] = x
		}
		for i, n := range names {
			if list[i] = known[n]; list[i] == nil {
				list[i] = &made[i]
				*name(list[i]) = n
				begin(list[i])
				next = append(next, list[i])
			}
		}
		if p.CompareAndSwap(old, &next) {
			return list
		}
	}
}

// Carried returns the counters of all tensors of an ensemble.
func (m *Model) Carried() []*Edge { return all(&m.edges) }

func all[T any](p *atomic.Pointer[[]*T]) []*T {
	if list := p.Load(); list != nil {
		return *list
	}
	return nil
}

// CopyReason is why a tensor was copied to another place. For example, an ONNX Runtime step on a GPU reads the
// output of a Python step: ForDevice.
type CopyReason uint8

// The reasons.
const (
	ForDevice   CopyReason = iota // a step on a device reads a tensor in host memory
	ForHost                       // a step on the host reads a tensor in device memory
	ForPeer                       // a step on a device reads a tensor of another device
	ForResponse                   // the response needs a tensor in device memory
	ForBatch                      // the host reads the tensor to form a batch: a shape tensor
	ForCapture                    // a tensor in device memory is captured, or recorded by a trace
	ForRows                       // rows are joined or cut within device memory
	ForState                      // the state of a sequence is copied within device memory
	ForProcess                    // a model's process reads or writes a tensor in memory that it shares with the server
	numCopyReasons
)

var copyReasons = [numCopyReasons]string{"device_step", "host_step", "other_device", "response", "batch", "capture", "rows", "state", "process"}

// String returns the label's value.
func (r CopyReason) String() string { return copyReasons[r] }

// Copy counts the copies of one tensor of a model between two places for one reason.
type Copy struct {
	Tensor   string // the name of the input that was read, or of the output of the response
	From, To tensor.Place
	Reason   CopyReason
	// Count is the number of copies that the devices made, Bytes their size.
	Count, Bytes uint64
}

// Direction is the way of a copy: "host_to_device", "device_to_host", "within_device", "peer" between two devices, or
// "within_host" between two processes.
func (c *Copy) Direction() string { return Direction(c.From, c.To) }

// Direction is the way of a copy between two places; see Copy.Direction.
func Direction(from, to tensor.Place) string {
	switch {
	case from.Kind != tensor.Device && to.Kind != tensor.Device:
		return "within_host"
	case from.Kind != tensor.Device:
		return "host_to_device"
	case to.Kind != tensor.Device:
		return "device_to_host"
	case from == to:
		return "within_device"
	default:
		return "peer"
	}
}

// Ledger counts a model's copies between places. The zero value is ready to use, and it is safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	copies []Copy // guarded by mu
}

// Count adds copies of n bytes together.
//
// hot: a scan of a short list, no allocation once every kind was seen.
func (l *Ledger) Count(name string, from, to tensor.Place, reason CopyReason, copies, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.copies {
		if m := &l.copies[i]; m.Tensor == name && m.From == from && m.To == to && m.Reason == reason {
			m.Count += uint64(copies)
			m.Bytes += uint64(n)
			return
		}
	}
	l.copies = append(l.copies, Copy{Tensor: name, From: from, To: to, Reason: reason, Count: uint64(copies), Bytes: uint64(n)})
}

// List returns the copies, in the order in which they first occurred.
func (l *Ledger) List() []Copy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.copies)
}

// Refusal is why a request was not executed.
type Refusal uint8

// The refusals.
const (
	QueueFull      Refusal = iota // the queue of its priority was full
	QueueTimeout                  // it waited longer than its queue allows
	DeadlinePassed                // its deadline passed while it waited
	DeadlineMissed                // its deadline has not passed, but it would before the response
	ClientGone                    // its client cancelled it or disconnected
	NotServing                    // the model has no instance for it
	NoSequence                    // its sequence could not get, or lost, a slot
	OverShare                     // its client was over its share
	numRefusals
)

var refusals = [numRefusals]struct {
	name   string
	reason Reason
}{
	{"queue_full", Rejected},
	{"queue_timeout", Rejected},
	{"deadline", Canceled},
	{"deadline_predicted", Rejected},
	{"client_gone", Canceled},
	{"not_serving", Backend},
	{"sequence", Rejected},
	{"over_share", Rejected},
}

// String returns the label's value.
func (r Refusal) String() string { return refusals[r].name }

// Refused counts one request that failed after ns nanoseconds without being executed.
func (m *Model) Refused(why Refusal, ns int64) {
	m.refused[why].Add(1)
	m.Failed(refusals[why].reason, ns)
}
