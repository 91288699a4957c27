package exec_test

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// budgetBench returns a bench with the production allocator, which does not allocate Go memory per buffer.
func budgetBench(t *testing.T) *bench {
	t.Helper()
	if racetest.Enabled {
		t.Skip("the race detector has sync.Pool forget at random")
	}
	bn := &bench{workers: scheduler.NewWorkers(), alloc: tensor.NewPool()}
	t.Cleanup(bn.workers.Close)
	return bn
}

// allocations returns the allocations per request in the steady state.
func allocations(t *testing.T, bn *bench, x infer.Inferer) float64 {
	t.Helper()
	input := bn.floats([]float32{1, 2})
	defer input.Release()
	ctx, cancel := context.WithCancel(t.Context()) // a cancellable context, as from a front end
	defer cancel()
	// A garbage collection would empty the pools, and refilling them would be counted.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	return testing.AllocsPerRun(200, func() {
		req := infer.NewRequest()
		req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: input.Retain()})
		call := infer.NewCall()
		x.Submit(ctx, req, call)
		resp, err := call.Wait()
		if err != nil {
			t.Error(err)
			return
		}
		resp.Release()
	})
}

// TestAllocs checks the allocation budget of requests. It is not parallel: it counts the allocations of the
// process.
func TestAllocs(t *testing.T) {
	bn := budgetBench(t)
	sig := signature("m", 1, 8)
	reshaped, ragged := signature("m", 1, 8), signature("m", 1, 8)
	for _, p := range []*config.Port{&reshaped.Inputs[0], &reshaped.Outputs[0]} {
		p.Reshape, _ = config.NewReshaping(p.Dims, p.Dims.Prepend(1), true)
	}
	ragged.Inputs[0].Unbatched, ragged.Outputs[0].Unbatched = true, true
	ragged.Scattered = []config.Scattered{{}}
	queued := func() scheduler.Scheduler { return bn.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share)) }
	for _, tc := range []struct {
		name string
		x    *exec.Executor
	}{
		{"inline model", bn.executor(plan.Single(sig), bn.inline(sig, share))},
		{"queued model", bn.executor(plan.Single(sig), queued())},
		{"chain of inline models", bn.executor(chain(3, sig), bn.inline(sig, share), bn.inline(sig, share), bn.inline(sig, share))},
		{"chain of queued models", bn.executor(chain(3, sig), queued(), queued(), queued())},
		{"reshaped model", bn.executor(plan.Single(reshaped), bn.inline(reshaped, share))},
		{"ragged model", bn.executor(plan.Single(ragged), bn.batching(ragged, dynamic.Rules{MaxBatch: 8}, model(share)))},
		{"models with outputs of their own", bn.executor(chain(3, sig), bn.inline(sig, add(1)), queued(), bn.inline(sig, add(2)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if n := allocations(t, bn, tc.x); n != 0 {
				t.Errorf("%v allocations a request, want none", n)
			}
		})
	}
}

// TestAllocsOfLargeGraphs checks that the setup cost of a graph is linear in its size, and that a request allocates
// no more in a large graph than in a small one.
func TestAllocsOfLargeGraphs(t *testing.T) {
	bn := budgetBench(t)
	sig := signature("m", 1, 8)
	m := bn.inline(sig, share)
	build := func(p *plan.Plan) *exec.Executor {
		targets := make([]scheduler.Scheduler, len(p.Nodes))
		for i := range targets {
			targets[i] = m
		}
		return bn.executor(p, targets...)
	}
	setUp := func(p *plan.Plan) float64 {
		return testing.AllocsPerRun(3, func() {
			if _, err := inferOne(t, build(p), bn.request(1)); err != nil {
				t.Error(err)
			}
		})
	}
	small, large := chain(100, sig), chain(1000, sig)
	if few, many := setUp(small), setUp(large); many > 12*few {
		t.Errorf("%v allocations for 100 nodes, %v for 1,000", few, many)
	}
	if n := allocations(t, bn, build(large)); n != 0 {
		t.Errorf("%v allocations a request through 1,000 nodes", n)
	}
}
