package tracing

import (
	"cmp"
	"slices"
)

// PartKind classifies a part of a request's time.
type PartKind uint8

// The kinds of parts, in the order of a request's way.
const (
	PartReceive   PartKind = iota // socket and decode
	PartScheduler                 // the server's own work
	PartLimit                     // waiting for max_inflight_requests, or for the other groups of a fan-out
	PartLoad                      // waiting for an evicted model to be loaded again
	PartQueue                     // waiting while the instance executes the batch before
	PartBatching                  // waiting for other requests to fill the batch
	PartCopies                    // gathering, scattering and moving tensors
	PartPadding                   // the share of computing added padding
	PartCompute                   // the model
	PartNative                    // a step that runs in this process
	PartCache                     // looking up the response cache
	PartEncode                    // encode and socket
	numParts
)

var partNames = [numParts]string{
	"receive", "scheduler", "limit", "model_load", "queue", "mates", "copies", "padding", "compute", "native", "cache", "encode",
}

// String returns the kind's name.
func (k PartKind) String() string { return nameOf(partNames[:], int(k), "unknown") }

// Part is an interval of a request's time.
type Part struct {
	Kind PartKind
	// Step is the index in Record.Steps, -1 for none. Batch is the batch that was executed or waited for.
	Step     int
	Batch    uint64
	From, To int64
}

// Split divides a request's time along its critical path. From the end backwards, each step is followed by the
// dependency that finished last. The parts are contiguous from the first to the last recorded time, so that they add up
// to the request's time. For example, a request may be 1 ms receive, 4 ms queue, 20 ms compute and 1 ms encode.
func Split(r *Record) []Part {
	start, end := r.Bounds()
	k := splitter{r: r, start: start, at: end}
	if made := cmp.Or(r.Last(InferResponseComplete), r.Last(RequestEnd)); made != 0 {
		k.back(PartEncode, -1, 0, made)
	}
	for i, rounds := k.last(), 0; i >= 0 && rounds <= len(r.Steps); rounds++ {
		k.step(i)
		i = k.before(i)
	}
	k.back(PartScheduler, -1, 0, cmp.Or(r.First(RequestStart), k.at))
	for _, p := range [...]Point{HTTPRecvEnd, GRPCWaitReadEnd} {
		if ns := r.First(p); ns != 0 {
			k.back(PartScheduler, -1, 0, ns)
			k.back(PartReceive, -1, 0, start)
		}
	}
	k.back(PartScheduler, -1, 0, start)
	slices.Reverse(k.parts)
	return k.parts
}

// CriticalSteps returns the indices of the steps on the critical path, the last step first.
func CriticalSteps(r *Record) []int {
	_, end := r.Bounds()
	k := splitter{r: r, at: end}
	var list []int
	for i := k.last(); i >= 0 && len(list) <= len(r.Steps); i = k.before(i) {
		list = append(list, i)
		k.at = min(k.at, r.Steps[i].Ready)
	}
	return list
}

// splitter walks a record backwards; the time after at is already divided.
type splitter struct {
	r         *Record
	start, at int64
	parts     []Part
}

func (k *splitter) back(kind PartKind, step int, batch uint64, ns int64) {
	ns = max(ns, k.start)
	if ns >= k.at {
		return
	}
	if n := len(k.parts); n > 0 && k.parts[n-1].Kind == kind && k.parts[n-1].Step == step && k.parts[n-1].Batch == batch {
		k.parts[n-1].From = ns
	} else {
		k.parts = append(k.parts, Part{Kind: kind, Step: step, Batch: batch, From: ns, To: k.at})
	}
	k.at = ns
}

// last returns the step that finished last, -1 for none.
func (k *splitter) last() int {
	best := -1
	for i := range k.r.Steps {
		if best < 0 || k.r.Steps[i].Complete() >= k.r.Steps[best].Complete() {
			best = i
		}
	}
	return best
}

// before returns the step that step i depended on, -1 for none. Of several executions of that node it returns the
// one of the same sub-run, else the latest one that had begun.
func (k *splitter) before(i int) int {
	s, best := &k.r.Steps[i], -1
	if s.After < 0 || s.After == s.Node {
		return -1
	}
	for j := range k.r.Steps {
		p := &k.r.Steps[j]
		switch {
		case p.Node != s.After || p.Ready > s.Ready:
		case p.SubRun == s.SubRun:
			return j
		case best < 0 || p.Ready >= k.r.Steps[best].Ready:
			best = j
		}
	}
	return best
}

// device divides the time of a step's batch at its device. Before it, the batch waited for the work before it in the stream: for the step's
// inputs, which the step before has, or for another batch.
func (k *splitter) device(i int, s *Step) {
	d := &s.Device
	k.back(PartScheduler, i, 0, d.End)
	k.back(PartCopies, i, 0, d.InferEnd)
	k.compute(i, s, d.InputEnd)
	k.back(PartCopies, i, 0, d.Start)
	if j := k.before(i); j >= 0 && k.r.Steps[j].Device.End > s.End {
		k.back(PartQueue, i, s.Before, k.r.Steps[j].Device.End)
		return
	}
	k.back(PartQueue, i, s.Before, s.End)
}

// compute divides the time of a model from ns on.
func (k *splitter) compute(i int, s *Step, ns int64) {
	kind := PartCompute
	if s.Native {
		kind = PartNative
	}
	if s.Padding > 0 && s.Elements > 0 && k.at > ns {
		k.back(PartPadding, i, s.Batch, k.at-int64(float64(k.at-ns)*float64(s.Padding)/float64(s.Elements)))
	}
	k.back(kind, i, s.Batch, ns)
}

func (k *splitter) step(i int) {
	s := &k.r.Steps[i]
	if s.Device.End != 0 {
		k.device(i, s)
		if j := k.before(i); j >= 0 && k.r.Steps[j].Device.End > s.End {
			return // the host was ahead: the step before was at the device meanwhile
		}
	}
	k.back(PartScheduler, i, 0, s.Done)
	switch {
	case s.Cached:
		k.back(PartCache, i, 0, s.Enqueued)
	case s.Batch != 0:
		k.execution(i, s)
	default: // it was never executed: it waited in vain
		k.load(i, s)
		k.back(PartQueue, i, 0, s.Enqueued)
	}
	k.load(i, s)
	k.back(PartLimit, i, 0, s.Ready)
}

// load adds the time in which a step waited for its model to be loaded again.
func (k *splitter) load(i int, s *Step) {
	for j := range k.r.Events {
		if x := &k.r.Events[j]; x.Kind == EventLoad && x.Node == s.Node && x.At >= s.Ready && x.At <= s.Enqueued {
			k.back(PartScheduler, i, 0, x.At+x.Duration)
			k.back(PartLoad, i, 0, x.At)
		}
	}
}

func (k *splitter) execution(i int, s *Step) {
	k.back(PartScheduler, i, 0, s.End)
	k.back(PartCopies, i, 0, s.InferEnd)
	k.compute(i, s, s.InputEnd)
	k.back(PartCopies, i, 0, s.Start)
	waits := max(s.Enqueued, min(s.BeforeEnd, s.Start)) // until here behind the batch before
	switch {
	case s.Held != 0:
		k.back(PartBatching, i, 0, max(waits, s.Held))
	case s.Newest > waits:
		k.back(PartScheduler, i, 0, s.Newest)
		k.back(PartBatching, i, 0, waits)
	}
	k.back(PartScheduler, i, 0, waits)
	k.back(PartQueue, i, s.Before, s.Enqueued)
}
