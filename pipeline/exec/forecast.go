package exec

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// forecast predicts the ends of an ensemble's requests. It is made once for an executor, and computes nothing before the first request
// with a deadline.
//
// Predictions are shared by all requests for an interval, so that they cost a request little: on arrival one comparison, at each step one
// load. Steps that a request may skip, because of a condition or because they are a fallback, count as if they took no time: a request
// that takes them is judged again at their queues.
type forecast struct {
	paths []scheduler.Path // per node; nil for a plain model
	after [][]int32        // per node: those whose outputs it reads; nil for a plain model
	// device is, per node, the first one that is at the same device.
	device []int32
	// predicts reports that the executor predicts: it is that of a whole ensemble, not of a segment.
	predicts bool

	clients atomic.Bool  // clients are told apart
	next    atomic.Int64 // when to predict again
	arrival atomic.Int64 // from the arrival of a request to its response, ns; 0 while it is not known
	mu      sync.Mutex
	route   *deadline.Route // guarded by mu; nil until the first prediction, since most ensembles have no deadlines
	ends    []int64         // guarded by mu: per node, from the arrival of a request to the end of the step, ns; 0 where nothing is predicted
	probes  deadline.Probes // guarded by mu
}

// interval is how long a prediction is used, in ns. It is longer for an ensemble of so many steps that a prediction takes long.
const interval = int64(500 * time.Microsecond)

// depths returns, per node of a plan, the longest distance from its first nodes.
func depths(p *plan.Plan) []int {
	depth, written := make([]int, len(p.Nodes)), make([]int, p.Slots) // written: 1 more than that of the writer
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, s := range slices.Concat(n.In, n.Waits) {
			if s != plan.None {
				depth[i] = max(depth[i], written[s])
			}
		}
		for _, s := range n.Out {
			if s != plan.None {
				written[s] = depth[i] + 1
			}
		}
	}
	return depth
}

// init prepares the forecast of an executor's plan, whose nodes have the numbers in s.Plan.
func (f *forecast) init(x *Executor, s *Settings, numbers []int32) {
	p := x.plan
	if !p.Ensemble {
		return
	}
	f.paths, f.ends = make([]scheduler.Path, len(p.Nodes)), make([]int64, len(p.Nodes))
	after, device := make([][]int32, len(p.Nodes)), make([]int32, len(p.Nodes))
	writer := make([]int32, p.Slots)
	for i := range writer {
		writer[i] = -1
	}
	shared := map[tensor.Place]int32{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, s := range slices.Concat(n.In, n.Waits) {
			if s != plan.None && writer[s] >= 0 && !slices.Contains(after[i], writer[s]) {
				after[i] = append(after[i], writer[s])
			}
		}
		for _, s := range n.Out {
			if s != plan.None {
				writer[s] = int32(i) //nolint:gosec // nodes are few
			}
		}
		number := int32(i) //nolint:gosec // nodes are few
		if numbers != nil {
			number = numbers[i]
		}
		f.paths[i].Prompt, f.paths[i].Graph, f.paths[i].Depth = !p.Early, s.graph, s.depth[number]
		device[i] = int32(i) //nolint:gosec // nodes are few
		if n.OnDevice && len(n.Places) > 0 {
			if first, ok := shared[n.Places[0]]; ok {
				device[i] = first
			} else {
				shared[n.Places[0]] = device[i]
			}
		}
	}
	f.after, f.device = after, device
	f.predicts = x.segment == nil && len(p.Nodes) > 0
}

// Load returns how long a request is predicted to wait for instances, on the longest way through the steps, and the part of the instances
// of the busiest step that execute.
func (x *Executor) Load() (wait time.Duration, utilization float64) {
	ends := make([]time.Duration, len(x.targets))
	for i := range x.targets {
		l := scheduler.LoadOf(x.targets[i])
		if x.forecast.after != nil {
			for _, a := range x.forecast.after[i] {
				ends[i] = max(ends[i], ends[a])
			}
		}
		ends[i] += l.Wait
		if l.Instances > 0 {
			utilization = max(utilization, float64(l.Busy)/float64(l.Instances))
		}
		wait = max(wait, ends[i])
	}
	return wait, utilization
}

// pathOf returns the path of a node's tasks, nil for a plain model.
func (f *forecast) pathOf(n int) *scheduler.Path {
	if f.paths == nil {
		return nil
	}
	return &f.paths[n]
}

// limit sets the deadline of a request that arrives: the earliest of the client's, that of its timeout and that of the ensemble.
//
// hot: a few comparisons.
func (r *run) limit(req *infer.Request) {
	x := r.x
	if d, ok := r.ctx.Deadline(); ok {
		req.Deadline = earlier(req.Deadline, max(telemetry.At(d), 1))
	}
	if !x.plan.Ensemble {
		return
	}
	if x.plan.Limit > 0 {
		req.Deadline = earlier(req.Deadline, r.started+int64(x.plan.Limit))
	}
	if req.Timeout > 0 && !x.perStep && req.Timeout < longestTimeout {
		req.Deadline = earlier(req.Deadline, r.started+int64(req.Timeout)*int64(time.Microsecond)) //nolint:gosec // compared before
	}
}

// longestTimeout is the timeout in microseconds from which on a request has no deadline: a hundred years.
const longestTimeout = 100 * 365 * 24 * 3600 * 1e6

// earlier returns the earlier one of two deadlines, of which the first may be 0 for none.
func earlier(a, b int64) int64 {
	if a == 0 || b < a {
		return b
	}
	return a
}

// admit returns why a request of an ensemble is refused on arrival: its response is expected after its deadline.
//
// hot: one comparison without a deadline.
func (x *Executor) admit(r *run) error {
	r.predicted = 0
	d := r.req.Deadline
	if d == 0 || x.forecast.paths == nil || r.req.Background {
		return nil
	}
	now := r.started
	if r.req.Client != nil && !x.forecast.clients.Load() {
		x.forecast.clients.Store(true)
	}
	if now >= x.forecast.next.Load() {
		x.predict(now)
	}
	r.predicted = x.forecast.arrival.Load()
	if r.predicted == 0 || r.predicted <= d-now {
		if r.req.Trace != nil {
			x.forecast.shared(r)
			r.traceForecast()
		}
		return nil
	}
	c := r.req.Client
	idle, slowest := x.predictFor(r, now, d, c)
	if r.predicted == 0 || r.predicted <= d-now {
		r.traceForecast()
		return nil
	}
	if idle && x.forecast.probe(now) {
		r.traceForecast()
		r.req.Probe = true
		return nil
	}
	if c != nil && c.Contended(now) {
		if x.predictWithin(now, d) <= d-now {
			return x.refuse(r, slowest, telemetry.OverShare, c.ErrOverShare(x.plan.Nodes[slowest].Name, time.Duration(now+r.predicted-d)))
		}
	}
	meta := r.req.Meta
	meta.Arrived = now
	return x.refuse(r, slowest, telemetry.DeadlineMissed, scheduler.ErrMissed(x.plan.Nodes[slowest].Name, &meta, now, now+r.predicted))
}

// refuse counts a request that is refused on arrival because of a node, and returns its error.
func (x *Executor) refuse(r *run, node int32, why telemetry.Refusal, err error) error {
	if x.stats != nil {
		x.stats.Refused(why, 0)
	}
	err = x.wrap(r.ctx, node, err)
	r.traceRefusal(node, err)
	return err
}

// probe reports whether a request may be let through that would be late.
func (f *forecast) probe(now int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probes.Try(now)
}

// probed notes the end of a request that was let through.
func (f *forecast) probed(m *infer.Meta, now int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probes.Ended(now, err == nil && now <= m.Deadline)
}

// predict predicts the ways of requests from their arrival and from each step. Of several goroutines one does.
func (x *Executor) predict(now int64) {
	f := &x.forecast
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if now < f.next.Load() || !f.predicts {
		return
	}
	if f.clients.Load() {
		x.stages(now, deadline.NoDeadline, infer.Newcomer)
		f.rests(func(p *scheduler.Path, rest int64) { p.Within.Store(rest) })
	}
	known := x.stages(now, deadline.NoDeadline, nil)
	f.rests(func(p *scheduler.Path, rest int64) { p.Rest.Store(rest) })
	arrival := int64(0)
	if known {
		arrival, _, _ = f.fromArrival(f.ends)
	}
	f.arrival.Store(arrival)
	f.next.Store(now + max(interval, 20*(telemetry.Now()-now)))
}

// rests predicts the time from the end of each step to the response. The stages are set, and mu is held.
func (f *forecast) rests(set func(p *scheduler.Path, rest int64)) {
	for i := range f.route.Stages {
		l := &f.route.Stages[i].Latency
		rows := l.Recent()
		leaves := l.Rows(rows)
		ends, _ := f.route.After(i, leaves, rows)
		set(&f.paths[i], ends-leaves)
	}
}

// stages sets the stages of the route, which the first call makes, and reports whether at least one step has a forecast. mu is held. A step before which tasks wait
// that have more time than due has less to do for a request that is due then.
func (x *Executor) stages(now, due int64, c *infer.Client) (known bool) {
	f := &x.forecast
	if f.route == nil {
		f.route = deadline.NewRoute(f.after, f.device)
	}
	for i := range f.route.Stages {
		s := &f.route.Stages[i]
		*s = deadline.Stage{}
		if n := &x.plan.Nodes[i]; n.Rows != 0 || n.FallbackOf != "" || n.Operation != nil { // a request may skip it
			continue
		}
		at := due
		if due != deadline.NoDeadline {
			at -= f.rest(i, c)
		}
		if stage, ok := scheduler.ForecastOf(x.targets[i], now, at, c); ok {
			*s, known = stage, true
		}
	}
	f.route.Share()
	return known
}

// rest returns the predicted time from the end of a step to the response, for a request of a client; nil where clients are not told apart.
func (f *forecast) rest(i int, c *infer.Client) int64 {
	if c != nil {
		return f.paths[i].Within.Load()
	}
	return f.paths[i].Rest.Load()
}

// predictWithin predicts how long a request takes that arrives now and is due at a time, of a client within its share; 0 if nothing is known.
func (x *Executor) predictWithin(now, due int64) (took int64) {
	f := &x.forecast
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.predicts && x.stages(now, due, infer.Newcomer) {
		took, _, _ = f.fromArrival(nil)
	}
	return took
}

// predictFor predicts how long a request of a client takes that arrives now and is due at a time, and sets predicted and ends of its run; 0 if nothing
// is known. It returns whether the request waits for nothing, and the step at which it waits longest.
func (x *Executor) predictFor(r *run, now, due int64, c *infer.Client) (idle bool, slowest int32) {
	f := &x.forecast
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.predicted = 0; !f.predicts || !x.stages(now, due, c) {
		return false, 0
	}
	r.ends = slices.Grow(r.ends[:0], len(f.ends))[:len(f.ends)]
	r.predicted, idle, slowest = f.fromArrival(r.ends)
	return idle, slowest
}

// shared sets predicted and ends of a run to the prediction that requests share.
func (f *forecast) shared(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.predicted, r.ends = f.arrival.Load(), append(r.ends[:0], f.ends...)
}

// fromArrival is predictFor when the stages are set. It sets the end of each step. mu is held.
func (f *forecast) fromArrival(each []int64) (took int64, idle bool, slowest int32) {
	ends, at := f.route.After(deadline.Arrival, 0, 1)
	doubt := f.route.Doubt()
	for i := range each {
		if each[i] = 0; f.route.Stages[i].Latency.Known() {
			each[i] = int64(doubt * float64(f.route.Finish(i)))
		}
	}
	return int64(doubt * float64(ends)), ends <= f.route.Alone(), int32(max(at, 0)) //nolint:gosec // nodes are few
}
