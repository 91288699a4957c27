package exec

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// Recall is an ensemble's executor with a response cache in front: a hit runs none of
// the steps. Identical requests in flight run once, by the rules of package
// scheduler/cached. Only complete answers without parameters are kept.
type ResponseCache struct {
	x       *Executor
	cache   cache.Cache
	stats   *telemetry.Model
	hashers *cache.Hashers
	flights cache.Flights[waiter]
	asks    sync.Pool

	mu    sync.Mutex
	broom *time.Timer // guarded by mu
	swept bool        // the broom is running, guarded by mu
}

// waiter is a request that follows another of its key.
type waiter struct {
	ctx  context.Context //nolint:containedctx // a request in flight
	req  *infer.Request
	sink infer.Sink
	came int64
}

// ask is a request on its way through the executor, and the sink that its answer comes
// by.
type ask struct {
	r        *ResponseCache
	sink     infer.Sink
	key      cache.Key
	keep     bool           // the answer goes to the cache
	sequence infer.Sequence // as the client sent it
	leads    bool
	took     int64   // ns of the lookup
	wanted   []int32 // outputs, by position in the signature
	out      []tensor.Tensor
	whole    bool // out is the answer
	waiting  []waiter
}

var _ infer.Sink = (*ask)(nil)

// NewRecall returns an executor that asks c first; identity tells the loaded version
// from every other one. The ensemble may not be decoupled.
func NewResponseCache(x *Executor, c cache.Cache, identity cache.Key) *ResponseCache {
	r := &ResponseCache{x: x, cache: c, stats: x.stats, hashers: cache.NewHashers(identity)}
	r.asks.New = func() any { return &ask{r: r} }
	return r
}

// Offer is the executor's Offer with the cache before it.
//
// hot: a hit allocates nothing besides the response, which is pooled.
func (r *ResponseCache) Offer(ctx context.Context, req *infer.Request, sink infer.Sink) bool {
	r.x.pending.Add(1) // until the request is answered, wherever
	if r.x.retired.Load() {
		r.x.pending.Add(-1)
		return false
	}
	if w := (waiter{ctx, req, sink, telemetry.Now()}); req.Async && r.cache.Remote() {
		go r.look(w) // who brings it does not wait for another process
	} else {
		r.look(w)
	}
	return true
}

// look asks the cache.
func (r *ResponseCache) look(w waiter) {
	a := r.asks.Get().(*ask) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	a.sink, a.wanted = w.sink, a.wanted[:0]
	if !r.begin(a, w.req) || w.ctx.Err() != nil {
		r.run(a, w, false, false)
		return
	}
	stamp, began := r.flights.Stamp(), telemetry.Now()
	hit := r.cache.Lookup(w.ctx, &a.key, a.out)
	a.took = telemetry.Now() - began
	if !hit {
		switch r.join(&a.key, w) {
		case cache.Follow:
			r.recycle(a)
			return
		case cache.Alone:
			r.run(a, w, true, false)
			return
		case cache.Lead:
			if stamp == r.flights.Stamp() || !r.cache.Lookup(w.ctx, &a.key, a.out) {
				r.run(a, w, true, true)
				return
			}
			a.waiting = r.flights.End(&a.key, a.waiting[:0])
		}
	}
	r.answer(a, w, a.took)
	r.share(a)
	r.recycle(a)
}

// begin notes which outputs are wanted and makes the key; false: the request is not for
// the cache, or wrong, which the executor says.
func (r *ResponseCache) begin(a *ask, req *infer.Request) bool {
	sig := r.x.plan.Signature
	h := r.hashers.Get()
	defer r.hashers.Put(h)
	h.Meta(&req.Meta)
	h.Uint(uint64(len(req.Inputs)))
	for i := range req.Inputs {
		in := &req.Inputs[i]
		if !in.Tensor.Present() || in.Tensor.Buf.Place().Kind == tensor.Device {
			return false
		}
		h.Text(in.Name)
		h.Tensor(&in.Tensor)
	}
	h.Uint(uint64(len(req.Outputs)))
	for _, name := range req.Outputs {
		o := sig.Output(name)
		if o < 0 {
			return false
		}
		h.Uint(uint64(o))
		a.wanted = append(a.wanted, int32(o))
	}
	if len(req.Outputs) == 0 {
		for o := range sig.Outputs {
			a.wanted = append(a.wanted, int32(o))
		}
	}
	a.key = h.Key()
	a.room()
	return true
}

// room makes out as many absent tensors as there are outputs wanted.
func (a *ask) room() {
	a.out = slices.Grow(a.out[:0], len(a.wanted))[:len(a.wanted)]
	clear(a.out)
}

func (r *ResponseCache) join(key *cache.Key, w waiter) cache.Role {
	u := cache.Urgency{Priority: w.req.Priority, Timeout: w.req.Timeout}
	r.stats.Queued(1) // before the leader may end
	role := r.flights.Join(key, u, w)
	if role == cache.Follow {
		r.sweepLater()
	} else {
		r.stats.Queued(-1)
	}
	return role
}

// run has the executor compute a request; the answer comes by a.
func (r *ResponseCache) run(a *ask, w waiter, keep, leads bool) {
	a.keep, a.leads, a.sequence = keep, leads, w.req.Sequence
	r.x.submit(w.ctx, w.req, a)
}

// Send implements infer.Sink: it notes the answer and passes it on.
func (a *ask) Send(resp *infer.Response) {
	if a.keep && resp.Final && len(resp.Params) == 0 && resp.Sequence == a.sequence {
		a.whole = true
		for i, o := range a.wanted {
			if t := resp.Output(a.r.x.plan.Signature.Outputs[o].Name); t != nil {
				a.out[i] = t.Retain()
			}
		}
	}
	a.sink.Send(resp)
}

// Close implements infer.Sink: the answer is kept before the client learns that its
// request is over, and then the followers have theirs.
func (a *ask) Close(err error) {
	r, began := a.r, telemetry.Now()
	ok := err == nil && a.whole && cache.Cacheable(a.out)
	if ok {
		r.cache.Insert(&a.key, a.out)
	}
	if err == nil && a.keep {
		r.stats.Missed(a.took + telemetry.Now() - began)
	}
	if a.leads {
		a.waiting = r.flights.End(&a.key, a.waiting[:0])
	}
	a.sink.Close(err)
	if ok {
		r.share(a)
	} else {
		r.retry(a, err)
	}
	r.recycle(a)
}

// share answers the followers of a request.
func (r *ResponseCache) share(a *ask) {
	for _, w := range a.waiting {
		r.stats.Queued(-1)
		if w.ctx.Err() != nil {
			r.cancel(w)
			continue
		}
		r.answer(a, w, 0)
	}
}

// retry has the followers of a request that failed computed: one of them leads when
// only the client of the first one had gone.
func (r *ResponseCache) retry(a *ask, err error) {
	for _, w := range a.waiting {
		r.stats.Queued(-1)
		if w.ctx.Err() != nil {
			r.cancel(w)
			continue
		}
		next := r.asks.Get().(*ask) //nolint:errcheck,forcetypeassert // the pool holds nothing else
		next.sink, next.key, next.took = w.sink, a.key, 0
		next.wanted = append(next.wanted[:0], a.wanted...)
		next.room()
		role := cache.Alone
		if status.CodeOf(err) == status.Cancelled {
			role = r.join(&next.key, w)
		}
		if role == cache.Follow {
			r.recycle(next)
			continue
		}
		w.req.Async = true // whoever completed the leader has other things to do
		r.run(next, w, true, role == cache.Lead)
	}
}

// answer ends a request with the outputs of a.
func (r *ResponseCache) answer(a *ask, w waiter, took int64) {
	p := r.x.plan
	resp := newResponse(p, w.req.ID)
	resp.Sequence = w.req.Sequence
	for i, o := range a.wanted {
		if a.out[i].Present() {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: p.Signature.Outputs[o].Name, Tensor: a.out[i].Retain()})
		}
	}
	resp.Final = true
	now := telemetry.Now()
	r.stats.Hit(w.came, now, took)
	if trace := w.req.Trace; trace != nil {
		trace.SetModel(p.Signature.Version, p.Ensemble)
		trace.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now, Node: -1})
		trace.Stamp(tracing.RequestStart, w.came)
		r.captureRecalled(a, w, resp)
		resp.Trace = trace.Hold()
		resp.Trace.Stamp(tracing.InferResponseComplete, now)
		trace.Stamp(tracing.RequestEnd, now)
	}
	w.req.Release()
	w.sink.Send(resp)
	w.sink.Close(nil)
	r.x.pending.Add(-1)
}

// cancel ends a follower whose client has gone.
func (r *ResponseCache) cancel(w waiter) {
	r.stats.Failed(telemetry.Canceled, telemetry.Now()-w.came)
	w.req.Release()
	w.sink.Close(gone(w.ctx))
	r.x.pending.Add(-1)
}

func (r *ResponseCache) recycle(a *ask) {
	tensor.ReleaseAll(a.out)
	clear(a.waiting)
	a.sink, a.keep, a.leads, a.whole, a.took, a.waiting = nil, false, false, false, 0, a.waiting[:0]
	r.asks.Put(a)
}

func (r *ResponseCache) sweepLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.swept:
		return
	case r.broom == nil:
		r.broom = time.AfterFunc(sweepEvery, r.sweep)
	default:
		r.broom.Reset(sweepEvery)
	}
	r.swept = true
}

// sweep gives up the followers whose clients have gone.
func (r *ResponseCache) sweep() {
	r.mu.Lock()
	r.swept = false
	r.mu.Unlock()
	gone, left := r.flights.Take(nil, func(w waiter) bool { return w.ctx.Err() != nil })
	if left {
		r.sweepLater()
	}
	for _, w := range gone {
		r.stats.Queued(-1)
		r.cancel(w)
	}
}

// newResponse returns an answer of p without outputs.
func newResponse(p *plan.Plan, id string) *infer.Response {
	resp := infer.NewResponse()
	resp.ID, resp.Model, resp.Version, resp.Ensemble = id, p.Signature.Model, p.Signature.Version, p.Ensemble
	return resp
}
