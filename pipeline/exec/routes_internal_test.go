package exec

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// routerOf returns a router of the alternatives a0, a1, ... with these shares, by the key "user".
func routerOf(canary *config.Canary, shares ...float64) *router {
	r := &config.Route{Of: "step", Kind: "split", Key: "user", Canary: canary}
	for i, s := range shares {
		r.Alternatives = append(r.Alternatives, config.Alternative{Name: fmt.Sprintf("a%d", i), Share: s})
	}
	p := &plan.Plan{Signature: &config.Signature{Model: "m"}, Routes: []*plan.Route{{Route: r, Step: "step"}}}
	return newRouters(&Executor{plan: p})[0]
}

func user(i int) infer.Params {
	return infer.Params{{Key: "other", Kind: infer.ParamInt, Int: 7}, {Key: "user", Kind: infer.ParamString, String: fmt.Sprintf("user-%d", i)}}
}

// withinBound reports whether a count of n draws with probability p is within five standard deviations of the binomial distribution.
func withinBound(count, n int, p float64) bool {
	return math.Abs(float64(count)-float64(n)*p) <= 5*math.Sqrt(float64(n)*p*(1-p))+1
}

// TestShares checks that the shares of the alternatives converge to their weights, for random weights, by keys and by chance.
func TestShares(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		shares, sum := make([]float64, 2+rng.IntN(6)), 0.0
		for i := range shares {
			if rng.IntN(5) > 0 {
				shares[i] = rng.Float64()
			}
			sum += shares[i]
		}
		if sum == 0 {
			shares[0], sum = 1, 1
		}
		for i := range shares {
			shares[i] /= sum
		}
		u := routerOf(nil, shares...)
		u.random = rng.Uint64
		byKey, byChance := make([]int, len(shares)), make([]int, len(shares))
		for i := range n {
			byKey[u.pick(user(i))]++
			byChance[u.pick(nil)]++
		}
		for i, p := range shares {
			if !withinBound(byKey[i], n, p) || !withinBound(byChance[i], n, p) {
				t.Errorf("seed %d: alternative %d of %v got %d by keys and %d by chance of %d requests", seed, i, shares, byKey[i], byChance[i], n)
			}
		}
	}
}

// TestSticky checks that a key stays with its alternative: in another router, as after a restart, and when the canary grows, in the canary.
// The first keys are written here, so that a change of the hash is noticed.
func TestSticky(t *testing.T) {
	t.Parallel()
	u, after := routerOf(nil, 0.3, 0.3, 0.4), routerOf(nil, 0.3, 0.3, 0.4)
	var first []int32
	for i := range 1000 {
		at := u.pick(user(i))
		if got := after.pick(user(i)); got != at {
			t.Fatalf("user %d moved from %d to %d without a change of weights", i, at, got)
		}
		if i < 10 {
			first = append(first, at)
		}
	}
	if got, want := fmt.Sprint(first), "[0 2 2 1 0 0 1 0 2 1]"; got != want {
		t.Errorf("the first ten users are at %s, want %s: keys must keep their alternatives across versions of the server", got, want)
	}
	c := routerOf(&config.Canary{Stages: []float64{0.1, 0.5, 1}, Requests: 1, MaxLatency: -1, MaxDrift: -1}, 0.1, 0.9)
	in := map[int]bool{}
	for range 3 {
		for i := range 1000 {
			at := c.pick(user(i)) == 0
			if in[i] && !at {
				t.Fatalf("user %d left the canary when its share grew", i)
			}
			in[i] = at
		}
		c.done(0, 1)
	}
}

// TestPickAllocates checks that a decision allocates nothing.
func TestPickAllocates(t *testing.T) {
	u, params := routerOf(nil, 0.5, 0.5), user(1)
	params[1] = infer.Param{Key: "user", Kind: infer.ParamInt, Int: 123}
	if n := testing.AllocsPerRun(100, func() { u.pick(params) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestCanary checks when a canary is promoted and rolled back.
func TestCanary(t *testing.T) {
	t.Parallel()
	type event func(u *router)
	its := func(ns int64) event { return func(u *router) { u.done(0, ns) } }
	own := func(ns int64) event { return func(u *router) { u.done(1, ns) } }
	itsFailure, ownFailure := event(func(u *router) { u.failed(0) }), event(func(u *router) { u.failed(1) })
	different, same := event(func(u *router) { u.observeShadow(true) }), event(func(u *router) { u.observeShadow(false) })
	times := func(n int, e event) []event {
		list := make([]event, n)
		for i := range list {
			list[i] = e
		}
		return list
	}
	join := func(lists ...[]event) (all []event) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for name, tc := range map[string]struct {
		events []event
		share  float64
		ended  bool
	}{
		"too few requests":                 {times(9, its(1)), 0.1, false},
		"the next stage":                   {times(10, its(1)), 0.5, false},
		"the last stage":                   {times(30, its(1)), 1, true},
		"one failure too many":             {join(times(4, its(1)), times(2, itsFailure)), 0, true},
		"a failure that is allowed":        {join(times(1, itsFailure), times(9, its(1))), 0.5, false},
		"both fail":                        {join(times(5, ownFailure), times(5, own(1)), times(5, itsFailure), times(5, its(1))), 0.5, false},
		"twice as slow":                    {join(times(10, own(10)), times(10, its(20))), 0.5, false},
		"three times as slow":              {join(times(10, own(10)), times(10, its(30))), 0, true},
		"nothing to compare the time with": {times(10, its(30)), 0.5, false},
		"a difference that is allowed":     {join(times(2, different), times(8, same), times(10, its(1))), 0.5, false},
		"too many differences":             {times(3, different), 0, true},
		"rolled back for good":             {join(times(3, different), times(30, its(1))), 0, true},
		"late failure":                     {join(times(10, its(1)), times(2, itsFailure)), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := routerOf(&config.Canary{Stages: []float64{0.1, 0.5, 1}, Requests: 10, MaxErrors: 0.1, MaxLatency: 2, MaxDrift: 0.2}, 0.1, 0.9)
			for _, e := range tc.events {
				e(u)
			}
			if got := u.counts[0].Share(); got != tc.share || u.canary.ended != tc.ended {
				t.Errorf("share %g, ended %t; want %g, %t", got, u.canary.ended, tc.share, tc.ended)
			}
			n := 0
			for i := range 1000 {
				if u.pick(user(i)) == 0 {
					n++
				}
			}
			if !withinBound(n, 1000, tc.share) {
				t.Errorf("%d of 1000 requests go to the canary, want a share of %g", n, tc.share)
			}
		})
	}
}

// TestCanaryConcurrent observes requests of many goroutines: the canary passes its stages, whatever their order.
func TestCanaryConcurrent(t *testing.T) {
	t.Parallel()
	u := routerOf(&config.Canary{Stages: []float64{0.1, 0.5, 1}, Requests: 100, MaxErrors: 0, MaxLatency: -1, MaxDrift: -1}, 0.1, 0.9)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				u.done(int(u.pick(user(i))), 1)
				u.done(0, 1)
			}
		})
	}
	all.Wait()
	if u.counts[0].Share() != 1 || !u.canary.ended {
		t.Errorf("share %g after 800 good requests, want 1", u.counts[0].Share())
	}
}

// TestShadowBound checks that no more copies are in flight than permitted, that further ones are dropped at once, and that a copy is not
// copied again.
func TestShadowBound(t *testing.T) {
	t.Parallel()
	const bound, requests = 3, 10
	held := make(chan infer.Sink, requests)
	x := &Executor{copying: t.Context(), submitter: func(_ context.Context, req *infer.Request, sink infer.Sink) {
		req.Release()
		held <- sink
	}}
	s := &shadow{Shadow: &plan.Shadow{Shadow: &config.Shadow{Alternative: config.Alternative{Name: "b", Model: "b", Share: 1}, InFlight: bound}}, counts: &telemetry.Shadow{}}
	x.shadows = []*shadow{s}
	node := &plan.Node{Signature: &config.Signature{}, Operation: &plan.Operation{Shadow: s.Shadow}}
	x.plan = &plan.Plan{Nodes: []plan.Node{*node}, Signature: &config.Signature{}}
	r := newRun(x, nil)
	r.ctx, r.req = t.Context(), infer.NewRequest()
	for range requests {
		r.shadowed(0, node)
	}
	if n := s.inFlight.Load(); n != bound {
		t.Errorf("%d copies in flight, want %d", n, bound)
	}
	if n := s.counts.Results[telemetry.ShadowDropped].Load(); n != requests-bound {
		t.Errorf("%d copies dropped, want %d", n, requests-bound)
	}
	r.ctx = context.WithValue(t.Context(), isCopy{}, true)
	r.shadowed(0, node)
	if n := s.counts.Results[telemetry.ShadowDropped].Load(); n != requests-bound {
		t.Errorf("a copy was copied: %d copies dropped, want %d", n, requests-bound)
	}
	for range bound {
		sink := <-held
		sink.Send(&infer.Response{Final: true})
		sink.Close(nil)
	}
	if err := x.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.counts.Results[telemetry.ShadowEqual].Load(); n != bound || s.inFlight.Load() != 0 {
		t.Errorf("%d copies compared, want %d; %d in flight", n, bound, s.inFlight.Load())
	}
}

// TestRouteState checks what is reported of a canary while it runs, when its last stage is over, and when it is rolled back.
func TestRouteState(t *testing.T) {
	t.Parallel()
	alternatives := func(share float64, requests, errs, own uint64) []infer.Alternative {
		a := []infer.Alternative{{Model: "a0", Share: share, Requests: requests, Errors: errs, MeanNs: 20}, {Model: "a1", Share: 1 - share, Requests: own, MeanNs: 10}}
		if requests == errs {
			a[0].MeanNs = 0
		}
		return a
	}
	stages := []float64{0.1, 0.5}
	for name, tc := range map[string]struct {
		its, failures, own, differ int
		want                       infer.Route
	}{
		"running": {3, 1, 5, 1, infer.Route{Alternatives: alternatives(0.1, 4, 1, 5), Canary: &infer.Canary{
			State: infer.CanaryRunning, Stages: stages, Stage: 1, Requests: 4, Errors: 1, OwnRequests: 5, Remaining: 6, Drift: &infer.Drift{Copies: 1, Different: 1, Max: 0.2},
		}}},
		"the next stage": {12, 0, 5, 0, infer.Route{Alternatives: alternatives(0.5, 12, 0, 5), Canary: &infer.Canary{
			State: infer.CanaryRunning, Stages: stages, Stage: 2, Requests: 2, Remaining: 8, Drift: &infer.Drift{Max: 0.2},
		}}},
		"passed": {20, 0, 5, 0, infer.Route{Alternatives: alternatives(0.5, 20, 0, 5), Canary: &infer.Canary{
			State: infer.CanaryPassed, Stages: stages, Stage: 2, Drift: &infer.Drift{Max: 0.2},
		}}},
		"rolled back": {0, 3, 5, 0, infer.Route{Alternatives: alternatives(0, 3, 3, 5), Canary: &infer.Canary{
			State: infer.CanaryRolledBack, Reason: "3 of 3 requests failed, and 0% of those of 'a1'", Stages: stages, Stage: 1,
			Requests: 3, Errors: 3, OwnRequests: 5, Drift: &infer.Drift{Max: 0.2},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := routerOf(&config.Canary{Stages: stages, Requests: 10, MaxErrors: 0.2, MaxLatency: -1, MaxDrift: 0.2}, 0.1, 0.9)
			for range tc.own {
				u.done(1, 10)
			}
			for range tc.differ {
				u.observeShadow(true)
			}
			for range tc.failures {
				u.failed(0)
			}
			for range tc.its {
				u.done(0, 20)
			}
			tc.want.Step, tc.want.Kind, tc.want.Key = "step", "split", "user"
			x := &Executor{routers: []*router{u}}
			if d := cmp.Diff([]infer.Route{tc.want}, x.Routes()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	counts := &telemetry.Shadow{}
	for i, n := range []uint64{1, 2, 3, 4} {
		counts.Results[i].Store(n)
	}
	s := &shadow{Shadow: &plan.Shadow{Step: "step", Shadow: &config.Shadow{Alternative: config.Alternative{Name: "b:2", Share: 0.5}, InFlight: 8}}, counts: counts}
	s.inFlight.Store(5)
	want := []infer.Route{{Step: "step", Kind: "shadow", Shadow: &infer.Shadow{Model: "b:2", Share: 0.5, InFlight: 5, MaxInFlight: 8, Equal: 1, Different: 2, Failed: 3, Dropped: 4}}}
	if d := cmp.Diff(want, (&Executor{shadows: []*shadow{nil, s}}).Routes()); d != "" {
		t.Errorf("a shadow (-want +got):\n%s", d)
	}
	if got := (&Executor{}).Routes(); got == nil || len(got) > 0 {
		t.Errorf("without routes: %v, want an empty list", got)
	}
}
