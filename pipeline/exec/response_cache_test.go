package exec_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// cachedEnsemble is an ensemble of one step with a response cache.
type cachedEnsemble struct {
	*bench
	r     *exec.ResponseCache
	stats *telemetry.Model
	runs  atomic.Int32
	enter chan struct{}
	leave chan error
}

func newCachedEnsemble(t *testing.T) *cachedEnsemble {
	t.Helper()
	x := &cachedEnsemble{bench: newBench(t), enter: make(chan struct{}, 8), leave: make(chan error, 8)}
	x.stats = x.bench.stats("e")
	step := x.batching(signature("m", 1, 8), dynamic.Rules{MaxBatch: 1}, model(func(b *backends.Batch) error {
		x.runs.Add(1)
		x.enter <- struct{}{}
		if err := <-x.leave; err != nil {
			return err
		}
		return share(b)
	}))
	c := local.New(local.Settings{Size: 1 << 20, Alloc: x.alloc})
	e := exec.New(exec.Settings{Plan: chain(1, signature("e", 1, 8)), Targets: []scheduler.Scheduler{step}, Stats: x.stats, Workers: x.workers, Mover: x.mover()})
	x.r = exec.NewResponseCache(e, c, cache.Key{1})
	t.Cleanup(func() {
		if err := errors.Join(e.Drain(context.Background()), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

// submit sends one request, which workers execute.
func (x *cachedEnsemble) submit(ctx context.Context, value float32, change func(*infer.Request)) *infer.Call {
	call, req := infer.NewCall(), x.request(value)
	if change != nil {
		change(req)
	}
	req.Async = true
	x.r.Offer(ctx, req, call)
	return call
}

func wait(t *testing.T, call *infer.Call, fails bool) {
	t.Helper()
	resp, err := call.Wait()
	if (err != nil) != fails {
		t.Errorf("ended with %v", err)
	}
	if resp != nil {
		if !resp.Final || resp.Model != "e" || len(resp.Outputs) != 1 {
			t.Errorf("response %+v", resp)
		}
		resp.Release()
	}
}

func (x *cachedEnsemble) counts(t *testing.T, runs int32, hits, misses uint64) {
	t.Helper()
	h, _ := x.stats.Hits.Load()
	m, _ := x.stats.Misses.Load()
	if got := x.runs.Load(); got != runs || h != hits || m != misses || x.stats.Pending() != 0 {
		t.Errorf("%d executions, %d hits, %d misses, %d pending; want %d, %d, %d, 0", got, h, m, x.stats.Pending(), runs, hits, misses)
	}
}

// TestResponseCache checks hits and misses: parameters are part of the key, the request ID is not, and an invalid
// request fails as without a cache.
func TestResponseCache(t *testing.T) {
	t.Parallel()
	x := newCachedEnsemble(t)
	param := func(r *infer.Request) {
		r.Params = append(r.Params, infer.Param{Key: "k", Kind: infer.ParamBool, Bool: true})
	}
	for i, change := range []func(*infer.Request){nil, nil, param, param, func(r *infer.Request) { r.ID = "other" }} {
		if i == 0 || i == 2 {
			x.leave <- nil
		}
		wait(t, x.submit(t.Context(), 2, change), false)
	}
	wait(t, x.submit(t.Context(), 2, func(r *infer.Request) { r.Outputs = []string{"none"} }), true)
	x.counts(t, 2, 3, 2)
	if n := x.stats.Responses(); n != 5 {
		t.Errorf("%d responses counted, want 5", n)
	}
}

// TestResponseCacheConcurrent checks that identical concurrent requests execute once, and each on its own after a
// failure.
func TestResponseCacheConcurrent(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errors.New("out of luck")} {
		x := newCachedEnsemble(t)
		lead := x.submit(t.Context(), 1, nil)
		<-x.enter
		a, b := x.submit(t.Context(), 1, nil), x.submit(t.Context(), 1, nil)
		x.leave <- failure
		if failure != nil {
			x.leave <- nil
			x.leave <- nil
		}
		wait(t, lead, failure != nil)
		wait(t, a, false)
		wait(t, b, false)
		if failure == nil {
			x.counts(t, 1, 2, 1)
		} else {
			x.counts(t, 3, 0, 2)
		}
	}
}

// TestResponseCacheCancelled checks that a follower becomes the leader when the leader's client disconnects, and
// that a follower ends when its own client does.
func TestResponseCacheCancelled(t *testing.T) {
	t.Parallel()
	x := newCachedEnsemble(t)
	busy := x.submit(t.Context(), 3, nil)
	<-x.enter
	ctx, cancel := context.WithCancel(t.Context())
	lead := x.submit(ctx, 1, nil)
	gone, leave := context.WithCancel(t.Context())
	a, b := x.submit(t.Context(), 1, nil), x.submit(gone, 1, nil)
	leave()
	wait(t, b, true)
	cancel()
	x.leave <- nil
	x.leave <- nil
	wait(t, busy, false)
	wait(t, a, false)
	wait(t, lead, true)
	x.counts(t, 2, 0, 2)
}

// TestResponseCacheRetired checks that a retired executor refuses requests.
func TestResponseCacheRetired(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := exec.New(exec.Settings{Plan: plan.Single(signature("m", 1, 8)), Targets: []scheduler.Scheduler{b.inline(signature("m", 1, 8), share)}, Workers: b.workers})
	c := local.New(local.Settings{Size: 1 << 20, Alloc: b.alloc})
	e.Retire()
	req := b.request(1)
	if exec.NewResponseCache(e, c, cache.Key{}).Offer(t.Context(), req, infer.NewCall()) {
		t.Fatal("a retired executor accepted a request")
	}
	req.Release()
}
