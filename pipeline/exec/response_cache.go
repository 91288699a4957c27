package exec

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// ResponseCache is an ensemble's executor with a response cache in front: a hit executes no step.
// Identical requests in flight are computed once, by the rules of cache.Front. Only complete
// responses without parameters are stored. It is safe for concurrent use.
//
// For example, when three clients send the same image at the same time, the first request (the
// leader) executes, and the other two (followers) get its outputs.
type ResponseCache struct {
	x     *Executor
	stats *telemetry.Model
	front *cache.Front[waiter]
	calls pool.Of[cachedCall]
	// remote reports that a lookup may wait for another process.
	remote bool
}

// waiter is a request that looks for its response, or follows another one.
type waiter struct {
	ctx     context.Context //nolint:containedctx // a request in flight
	req     *infer.Request
	sink    infer.Sink
	arrived int64
}

// cachedCall is a request on its way through the executor, and the sink that receives its response. It is pooled.
type cachedCall struct {
	r        *ResponseCache
	sink     infer.Sink
	key      cache.Key
	store    bool           // the response goes to the cache
	sequence infer.Sequence // as the client sent it
	leads    bool
	took     int64   // ns of the lookup
	wanted   []int32 // outputs, by position in the signature
	out      []tensor.Tensor
	complete bool // out is the response
	waiting  []waiter
}

// NewResponseCache returns an executor that looks in c first; identity is its version's. It must not be decoupled.
func NewResponseCache(x *Executor, c cache.Cache, identity cache.Key) *ResponseCache {
	r := &ResponseCache{x: x, stats: x.stats, remote: c.Remote()}
	r.front = cache.NewFront(cache.FrontSettings[waiter]{
		Cache: c, Identity: identity, Stats: x.stats,
		Context: func(w waiter) context.Context { return w.ctx },
		Meta:    func(w waiter) *infer.Meta { return &w.req.Meta },
		Cancel: func(list []waiter) {
			for _, w := range list {
				r.cancel(w)
			}
		},
	})
	r.calls.New = func() *cachedCall { return &cachedCall{r: r} }
	return r
}

// Offer is Executor.Offer with the cache in front.
//
// hot: a hit allocates nothing besides the response, which is pooled.
func (r *ResponseCache) Offer(ctx context.Context, req *infer.Request, sink infer.Sink) bool {
	r.x.pending.Add(1) // until the response is sent
	if r.x.retired.Load() {
		r.x.pending.Add(-1)
		return false
	}
	if w := (waiter{ctx, req, sink, telemetry.Now()}); req.Async && r.remote {
		go r.lookUp(w) //nolint:contextcheck // w has the context; the caller must not wait for another process
	} else {
		r.lookUp(w) //nolint:contextcheck // w has the context
	}
	return true
}

// lookUp responds from the cache, follows another request, or computes.
func (r *ResponseCache) lookUp(w waiter) {
	a := r.calls.Get()
	a.sink, a.wanted = w.sink, a.wanted[:0]
	if !r.begin(a, w.req) || w.ctx.Err() != nil {
		r.run(a, w, false, false)
		return
	}
	at := r.front.Find(w, &a.key, a.out)
	a.took = at.Took
	switch {
	case at.Hit:
		if at.Role == cache.Lead {
			a.waiting = r.front.End(&a.key, a.waiting[:0])
		}
		r.respond(a, w, a.took)
		r.serve(a, true, nil)
		r.recycle(a)
	case at.Role == cache.Follow:
		r.recycle(a)
	default:
		r.run(a, w, true, at.Role == cache.Lead)
	}
}

// begin sets the requested outputs and the key; false for a request that is invalid or cannot be looked up.
func (r *ResponseCache) begin(a *cachedCall, req *infer.Request) bool {
	if len(req.Into) > 0 {
		return false // its outputs stay at the device
	}
	sig := r.x.plan.Signature
	h := r.front.Get()
	defer r.front.Put(h)
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

// room sets out to as many absent tensors as outputs are requested.
func (a *cachedCall) room() {
	a.out = slices.Grow(a.out[:0], len(a.wanted))[:len(a.wanted)]
	clear(a.out)
}

// run submits a request to the executor, with a as its sink.
func (r *ResponseCache) run(a *cachedCall, w waiter, store, leads bool) {
	a.store, a.leads, a.sequence = store, leads, w.req.Sequence
	r.x.submit(w.ctx, w.req, a)
}

// Send implements infer.Sink: it retains the outputs and passes the response on.
func (a *cachedCall) Send(resp *infer.Response) {
	if a.store && resp.Final && len(resp.Params) == 0 && resp.Sequence == a.sequence {
		a.complete = true
		for i, o := range a.wanted {
			if t := resp.Output(a.r.x.plan.Signature.Outputs[o].Name); t != nil {
				a.out[i] = t.Retain()
			}
		}
	}
	a.sink.Send(resp)
}

// Close implements infer.Sink. It stores the response before the client learns of it, and then serves the followers.
func (a *cachedCall) Close(err error) {
	r := a.r
	ok := err == nil && a.complete && cache.Cacheable(a.out)
	a.waiting = r.front.Computed(&a.key, a.out, cache.Computed{
		Store: ok, Succeeded: err == nil && a.store, Leads: a.leads, Began: telemetry.Now(), Took: a.took,
	}, a.waiting[:0])
	a.sink.Close(err)
	r.serve(a, ok, err)
	r.recycle(a)
}

// serve ends the followers of a request: with its outputs when ok is set. Else they are executed. If only the client of
// the failed request disconnected, one of them becomes the leader.
func (r *ResponseCache) serve(a *cachedCall, ok bool, err error) {
	for _, w := range a.waiting {
		switch {
		case w.ctx.Err() != nil:
			r.cancel(w)
			continue
		case ok:
			r.respond(a, w, 0)
			continue
		}
		next := r.calls.Get()
		next.sink, next.key, next.took = w.sink, a.key, 0
		next.wanted = append(next.wanted[:0], a.wanted...)
		next.room()
		role := r.front.Retry(&next.key, w, err)
		if role == cache.Follow {
			r.recycle(next)
			continue
		}
		w.req.Async = true // do not block the goroutine that completed the leader
		r.run(next, w, true, role == cache.Lead)
	}
}

// respond ends a request with the outputs of a.
func (r *ResponseCache) respond(a *cachedCall, w waiter, took int64) {
	p := r.x.plan
	resp := newResponse(p, w.req.ID, w.req.Sequence)
	for i, o := range a.wanted {
		if a.out[i].Present() {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: p.Signature.Outputs[o].Name, Tensor: a.out[i].Retain()})
		}
	}
	resp.Final = true
	now := telemetry.Now()
	r.stats.Hit(w.arrived, now, took)
	if trace := w.req.Trace; trace != nil {
		trace.SetModel(p.Signature.Version, p.Ensemble)
		trace.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now, Node: -1})
		trace.Stamp(tracing.RequestStart, w.arrived)
		r.captureCached(a, w, resp)
		resp.Trace = trace.Hold()
		resp.Trace.Stamp(tracing.InferResponseComplete, now)
		trace.Stamp(tracing.RequestEnd, now)
	}
	w.req.Release()
	w.sink.Send(resp)
	w.sink.Close(nil)
	r.x.pending.Add(-1)
}

// cancel ends a follower whose client has disconnected.
func (r *ResponseCache) cancel(w waiter) {
	r.stats.Failed(telemetry.Canceled, telemetry.Now()-w.arrived)
	w.req.Release()
	w.sink.Close(cancelError(w.ctx))
	r.x.pending.Add(-1)
}

func (r *ResponseCache) recycle(a *cachedCall) {
	tensor.ReleaseAll(a.out)
	clear(a.waiting)
	a.sink, a.store, a.leads, a.complete, a.took, a.waiting = nil, false, false, false, 0, a.waiting[:0]
	r.calls.Put(a)
}

// newResponse returns a response of p without outputs. That of an ensemble has the sequence parameters.
func newResponse(p *plan.Plan, id string, sequence infer.Sequence) *infer.Response {
	resp := infer.NewResponse()
	resp.ID, resp.Model, resp.Version, resp.Ensemble = id, p.Signature.Model, p.Signature.Version, p.Ensemble
	if p.Ensemble {
		resp.Sequence = sequence
	}
	return resp
}
