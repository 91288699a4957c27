package tracing

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
)

// The names of what a trace records, in the order in which it happens. A request's
// queue time ends at ComputeStart, and the model runs from ComputeInputEnd to
// ComputeOutputStart.
const (
	HTTPRecvStart         = "HTTP_RECV_START"
	HTTPRecvEnd           = "HTTP_RECV_END"
	HTTPSendStart         = "HTTP_SEND_START"
	HTTPSendEnd           = "HTTP_SEND_END"
	GRPCWaitReadStart     = "GRPC_WAITREAD_START"
	GRPCWaitReadEnd       = "GRPC_WAITREAD_END"
	GRPCSendStart         = "GRPC_SEND_START"
	GRPCSendEnd           = "GRPC_SEND_END"
	RequestStart          = "REQUEST_START"
	QueueStart            = "QUEUE_START"
	ComputeStart          = "COMPUTE_START"
	ComputeInputEnd       = "COMPUTE_INPUT_END"
	ComputeOutputStart    = "COMPUTE_OUTPUT_START"
	ComputeEnd            = "COMPUTE_END"
	InferResponseComplete = "INFER_RESPONSE_COMPLETE"
	RequestEnd            = "REQUEST_END"
)

// Trace is what is seen of one request, or of one step of an ensemble's. All methods
// may be called on a nil Trace, which is what a request that is not traced has, and
// by several goroutines.
//
// A trace has holders: who sampled it, and those it was shared with by Hold. It is
// written when the last one, of the request's and of its steps' traces, has ended it.
type Trace struct {
	group   *group
	id      uint64
	parent  uint64
	model   string
	version int64
	request string
	stamps  []stamp
}

// maxStamps bounds a trace: a decoupled model may answer without end.
const maxStamps = 1 << 12

type stamp struct {
	name string
	ns   int64
}

// group is a request's trace with those of its steps.
type group struct {
	set *setting

	mu      sync.Mutex
	traces  []*Trace // guarded by mu, with what is in them; the request's first
	holders int      // guarded by mu
}

// newGroup returns the trace of a sampled request, with one holder.
func newGroup(s *setting, model string, version int64, id string) *Trace {
	g := &group{set: s, holders: 1}
	t := &Trace{group: g, id: s.ids.Add(1), model: model, version: version, request: id}
	g.traces = append(g.traces, t)
	return t
}

// Serve says which version serves the request; who sampled it may not have known.
func (t *Trace) Serve(version int64) {
	if t == nil {
		return
	}
	t.group.mu.Lock()
	defer t.group.mu.Unlock()
	t.version = version
}

// Stamp records that something happened at ns, a time of telemetry.Now.
func (t *Trace) Stamp(name string, ns int64) {
	if t == nil {
		return
	}
	t.group.mu.Lock()
	defer t.group.mu.Unlock()
	if len(t.stamps) < maxStamps {
		t.stamps = append(t.stamps, stamp{name, ns})
	}
}

// Child returns the trace of a step. Who gets it ends it.
func (t *Trace) Child(model string, version int64) *Trace {
	if t == nil {
		return nil
	}
	g := t.group
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &Trace{group: g, id: g.set.ids.Add(1), parent: t.id, model: model, version: version, request: t.request}
	g.traces = append(g.traces, c)
	g.holders++
	return c
}

// Hold returns t for one more holder, who ends it too.
func (t *Trace) Hold() *Trace {
	if t == nil {
		return nil
	}
	t.group.mu.Lock()
	defer t.group.mu.Unlock()
	t.group.holders++
	return t
}

// End gives t up. Nothing may be done with it after by who did that.
func (t *Trace) End() {
	if t == nil {
		return
	}
	g := t.group
	g.mu.Lock()
	g.holders--
	last := g.holders == 0
	g.mu.Unlock()
	if last {
		g.set.collect(g.encode())
	}
}

// encode returns the members of the trace file's array that the group is.
func (g *group) encode() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b []byte
	for _, t := range g.traces {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = t.encode(b)
	}
	return b
}

// encode appends a member that says whose trace it is and one per time, in order:
// what happened is not always recorded at once.
func (t *Trace) encode(b []byte) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), t.id, 10)
	b = appendString(append(b, `,"model_name":`...), t.model)
	b = strconv.AppendInt(append(b, `,"model_version":`...), t.version, 10)
	if t.request != "" {
		b = appendString(append(b, `,"request_id":`...), t.request)
	}
	if t.parent != 0 {
		b = strconv.AppendUint(append(b, `,"parent_id":`...), t.parent, 10)
	}
	b = append(b, '}')
	slices.SortStableFunc(t.stamps, func(a, b stamp) int { return cmp.Compare(a.ns, b.ns) })
	for _, s := range t.stamps {
		b = strconv.AppendUint(append(b, `,{"id":`...), t.id, 10)
		b = appendString(append(b, `,"timestamps":[{"name":`...), s.name)
		b = strconv.AppendInt(append(b, `,"ns":`...), s.ns, 10)
		b = append(b, `}]}`...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	j, _ := json.Marshal(s) // a string always has a JSON form
	return append(b, j...)
}
