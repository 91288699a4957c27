package exec

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// Routes. The choices of a route's alternatives share one decision, which the first of them makes: by the hash of a request parameter, or
// by chance. The alternative that it takes has all rows of the step, the others have none.

// router divides the requests of a step. It is safe for concurrent use.
type router struct {
	*plan.Route

	model  string             // the ensemble's
	salt   uint64             // of the hash: steps divide keys independently
	random func() uint64      // in place of a key
	bounds []atomic.Uint64    // per alternative but the last: the shares up to it, of 1<<shareBits
	counts []*telemetry.Route // per alternative
	canary *canary            // nil for a split
	log    *slog.Logger       // may be nil
}

// shareBits is the resolution of shares.
const shareBits = 53

// newRouters returns a router for each route of a plan.
func newRouters(x *Executor) []*router {
	var list []*router
	for _, r := range x.plan.Routes {
		h := fnv.New64a()
		_, _ = h.Write([]byte(x.plan.Signature.Model + "\x00" + r.Step + "\x00"))
		u := &router{Route: r, model: x.plan.Signature.Model, salt: h.Sum64(), random: rand.Uint64, bounds: make([]atomic.Uint64, len(r.Alternatives)-1), log: x.log}
		for _, a := range r.Alternatives {
			c := &telemetry.Route{}
			if x.stats != nil {
				c = x.stats.RouteOf(r.Step, r.Kind, a.Name)
			}
			u.counts = append(u.counts, c)
		}
		shares := make([]float64, len(r.Alternatives))
		for i, a := range r.Alternatives {
			shares[i] = a.Share
		}
		if u.setShares(shares); r.Canary != nil {
			u.canary = &canary{Canary: r.Canary}
		}
		list = append(list, u)
	}
	return list
}

// setShares sets the share of each alternative.
func (u *router) setShares(shares []float64) {
	sum := 0.0
	for i, s := range shares {
		u.counts[i].SetShare(s)
		if sum += s; i < len(u.bounds) {
			u.bounds[i].Store(uint64(sum * (1 << shareBits)))
		}
	}
}

// pick returns the alternative for a request.
//
// hot: no allocation.
func (u *router) pick(params infer.Params) int32 {
	at, found := uint64(0), false
	if u.Key != "" {
		for i := range params {
			if params[i].Key == u.Key {
				at, found = u.hash(&params[i]), true
				break
			}
		}
	}
	if !found {
		at = u.random()
	}
	at >>= 64 - shareBits
	for i := range u.bounds {
		if at < u.bounds[i].Load() {
			return int32(i) //nolint:gosec // few
		}
	}
	return int32(len(u.bounds)) //nolint:gosec // few
}

// hash returns the hash of a parameter's value (FNV-1a, and the last step of MurmurHash3, which spreads it over all bits). It must stay as
// it is: keys keep their alternatives when the server is replaced.
func (u *router) hash(p *infer.Param) uint64 {
	var few [32]byte
	text := few[:0]
	switch p.Kind {
	case infer.ParamBool:
		text = strconv.AppendBool(text, p.Bool)
	case infer.ParamInt:
		text = strconv.AppendInt(text, p.Int, 10)
	case infer.ParamUint:
		text = strconv.AppendUint(text, p.Uint, 10)
	case infer.ParamDouble:
		text = strconv.AppendFloat(text, p.Double, 'g', -1, 64)
	case infer.ParamString:
	}
	const prime = 1099511628211
	h := u.salt
	for _, b := range text {
		h = (h ^ uint64(b)) * prime
	}
	for i := range len(p.String) {
		h = (h ^ uint64(p.String[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// routing is what the routes of a run decided.
type routing struct {
	taken    []atomic.Int32 // per route: 1 and the alternative; 0 until it is decided
	begun    []atomic.Int64 // per route: when, as telemetry.Now returns it
	joinedAt []atomic.Int64 // per route: when the alternative's tensors were there; 0 until then
}

func newRouting(n int) routing {
	if n == 0 {
		return routing{}
	}
	return routing{make([]atomic.Int32, n), make([]atomic.Int64, n), make([]atomic.Int64, n)}
}

// takeRoute gives the choice of an alternative its rows. looks are the rows of the step.
func (r *run) takeRoute(n int32, node *plan.Node) {
	op := node.Operation
	u := r.x.routers[op.Route]
	taken := &r.taken[op.Route]
	if taken.Load() == 0 {
		if alternative := u.pick(r.req.Params); taken.CompareAndSwap(0, alternative+1) {
			r.begun[op.Route].Store(telemetry.Now())
			r.noteRoute(n, u, alternative)
		}
	}
	of := r.rowsIn(node, r.tasks[n].In)
	set := &r.sets[op.Chooses]
	*set = rowSet{rows: set.rows[:0], of: of, all: taken.Load() == op.Alternative+1}
}

// noteRoute records which alternative runs, for the response and the trace.
func (r *run) noteRoute(n int32, u *router, alternative int32) {
	a := &u.Alternatives[alternative]
	r.root.tell(infer.Param{Key: "route." + u.Step, Kind: infer.ParamString, String: a.Name}, nil)
	if r.req.Trace != nil {
		r.traceRows(tracing.EventRouted, n, fmt.Sprintf("'%s' was executed by '%s', which has %.4g%% of the requests", u.Step, a.Name, u.counts[alternative].Share()*100))
	}
}

// routeJoined notes that the tensors of an alternative are there.
func (r *run) routeJoined(op *plan.Operation) {
	if op.Route >= 0 {
		r.joinedAt[op.Route].Store(telemetry.Now())
	}
}

// endRoutes counts the request for the alternatives that executed it. A failure counts for the alternative that failed.
func (r *run) endRoutes(err error) {
	if r.taken == nil {
		return
	}
	f := r.failure.Load()
	for i, u := range r.x.routers {
		taken := r.taken[i].Swap(0) - 1
		begun, ended := r.begun[i].Load(), r.joinedAt[i].Swap(0)
		switch {
		case taken < 0:
		case err == nil && ended > 0:
			u.done(int(taken), ended-begun)
		case err == nil || f == nil || f.node < 0 || status.CodeOf(err) == status.Cancelled:
		case r.x.plan.AlternativeOf(u.Route, f.node) == int(taken):
			u.failed(int(taken))
		}
	}
}

// done counts a request that an alternative executed.
func (u *router) done(alternative int, ns int64) {
	c := u.counts[alternative]
	c.Succeeded.Add(1)
	c.Ns.Add(uint64(max(ns, 0)))
	if u.canary != nil {
		u.observe(alternative, false, ns)
	}
}

// failed counts a request that an alternative failed.
func (u *router) failed(alternative int) {
	u.counts[alternative].Failed.Add(1)
	if u.canary != nil {
		u.observe(alternative, true, 0)
	}
}

// canary is the state of a canary: alternative 0 is the canary, 1 the step's own model.
type canary struct {
	*config.Canary

	mu     sync.Mutex
	stage  int
	ended  bool           // rolled back, or all requests go to the canary
	reason string         // why it was rolled back, else ""
	seen   [2]observation // since the stage began
	drift  int            // shadow responses that differ, since the stage began
	copies int            // shadow responses
}

// observation sums up the requests of an alternative.
type observation struct{ requests, failed, ns int64 }

func (o *observation) mean() float64 { return float64(o.ns) / float64(max(o.requests-o.failed, 1)) }

func (o *observation) failures() float64 { return float64(o.failed) / float64(max(o.requests, 1)) }

// observe notes a request, and moves the canary to the next stage or rolls it back.
func (u *router) observe(alternative int, failed bool, ns int64) {
	c := u.canary
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	o := &c.seen[min(alternative, 1)]
	if o.requests++; failed {
		o.failed++
	}
	o.ns += ns
	u.judge()
}

// observeShadow notes a response of the canary to a copy of a request.
func (u *router) observeShadow(different bool) {
	c := u.canary
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if c.copies++; different {
		c.drift++
	}
	u.judge()
}

// judge decides about the canary, when it has executed enough requests, or has failed too many already. c.mu is held.
func (u *router) judge() {
	c := u.canary
	its, own := &c.seen[0], &c.seen[1]
	allowed := own.failures() + c.MaxErrors
	if float64(its.failed) > allowed*float64(max(its.requests, int64(c.Requests))) {
		u.rollBack(fmt.Sprintf("%d of %d requests failed, and %.4g%% of those of '%s'", its.failed, its.requests, own.failures()*100, u.Alternatives[1].Name))
		return
	}
	if c.MaxDrift >= 0 && float64(c.drift) > c.MaxDrift*float64(max(c.copies, c.Requests)) {
		u.rollBack(fmt.Sprintf("%d of %d responses to copies of requests differ", c.drift, c.copies))
		return
	}
	if its.requests < int64(c.Requests) {
		return
	}
	if c.MaxLatency >= 0 && own.requests > own.failed && its.mean() > c.MaxLatency*own.mean() {
		u.rollBack(fmt.Sprintf("its requests took %.4g times as long as those of '%s'", its.mean()/own.mean(), u.Alternatives[1].Name))
		return
	}
	u.promote()
}

// promote begins the next stage of a canary. After the last one its share stays.
func (u *router) promote() {
	c := u.canary
	c.seen, c.drift, c.copies = [2]observation{}, 0, 0
	if c.stage++; c.stage >= len(c.Stages) {
		c.ended = true
		u.tell(slog.LevelInfo, "passed its last stage", slog.Float64("share", c.Stages[len(c.Stages)-1]))
		return
	}
	u.setShares([]float64{c.Stages[c.stage], 1 - c.Stages[c.stage]})
	u.tell(slog.LevelInfo, "enters the next stage", slog.Float64("share", c.Stages[c.stage]))
}

// rollBack sends every request to the step's own model, until the ensemble is loaded again.
func (u *router) rollBack(reason string) {
	u.canary.ended, u.canary.reason = true, reason
	u.setShares([]float64{0, 1})
	u.tell(slog.LevelWarn, "rolled back", slog.String("reason", reason))
}

func (u *router) tell(level slog.Level, text string, more slog.Attr) {
	if u.log != nil {
		u.log.LogAttrs(context.Background(), level, "canary", slog.String("state", text), slog.String("model", u.model), slog.String("step", u.Step), slog.String("canary", u.Alternatives[0].Name), more)
	}
}
