package exec_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// batchRecorder is a model that records its batches.
type batchRecorder struct {
	mu   sync.Mutex
	reqs []int     // requests per batch, guarded by mu
	rows []float32 // in order of execution, guarded by mu
	does model
}

func (w *batchRecorder) instance() model {
	return func(b *backends.Batch) error {
		w.mu.Lock()
		w.reqs = append(w.reqs, len(b.Requests))
		w.rows = append(w.rows, tensor.Slice[float32](&b.In[0])...)
		w.mu.Unlock()
		return w.does(b)
	}
}

// together sends one request per value, so that the first model executes them as one batch.
func together(t *testing.T, b *bench, x *exec.Executor, values ...float32) []error {
	t.Helper()
	calls := make([]*infer.Call, len(values))
	for i, v := range values {
		req := b.request(v)
		req.Async = true
		calls[i] = infer.NewCall()
		x.Submit(t.Context(), req, calls[i])
	}
	errs := make([]error, len(values))
	for i, call := range calls {
		resp, err := call.Wait()
		if errs[i] = err; err == nil {
			resp.Release()
		}
	}
	return errs
}

// full returns rules with which a batch waits until it has n rows.
func full(n int32) dynamic.Rules {
	return dynamic.Rules{MaxBatch: 8, Preferred: []int32{n}, Delay: time.Hour}
}

// countingPool counts allocations.
type countingPool struct {
	tensor.Allocator
	mu sync.Mutex
	n  int
}

func (c *countingPool) Alloc(n int) (*tensor.Buffer, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Allocator.Alloc(n)
}

// TestBatchesStayTogether checks that a batch stays one batch through batching and inline steps, in order and
// without a copy.
func TestBatchesStayTogether(t *testing.T) {
	t.Parallel()
	sig := signature("m", 1, 8)
	b := newHostBench(t)
	mem := &countingPool{Allocator: b.alloc}
	b.alloc = mem
	steps := make([]batchRecorder, 5)
	for i := range steps {
		steps[i].does = share
	}
	x := b.executor(chain(5, sig), b.batching(sig, full(4), steps[0].instance()),
		b.batching(sig, dynamic.Rules{MaxBatch: 8}, steps[1].instance()),
		b.inline(sig, steps[2].instance()), b.inline(sig, steps[3].instance()),
		b.batching(sig, dynamic.Rules{MaxBatch: 8}, steps[4].instance()))
	if err := errors.Join(together(t, b, x, 1, 2, 3, 4)...); err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		if s := &steps[i]; !slices.Equal(s.reqs, []int{4}) || !slices.Equal(s.rows, []float32{1, 2, 3, 4}) {
			t.Errorf("step %d got batches of %v requests, with rows %v", i, s.reqs, s.rows)
		}
	}
	if mem.n != 5 { // four requests and one gather at the first step
		t.Errorf("%d buffers allocated, want 5", mem.n)
	}
}

// TestRowsThatDifferAreSplitOff checks that failed requests leave the others of a batch together.
func TestRowsThatDifferAreSplitOff(t *testing.T) {
	t.Parallel()
	b, sig := newHostBench(t), signature("m", 1, 8)
	broken := errors.New("broken")
	first, second, third := batchRecorder{}, batchRecorder{does: share}, batchRecorder{does: share}
	first.does = func(bt *backends.Batch) error {
		for row, v := range tensor.Slice[float32](&bt.In[0]) {
			if v < 0 {
				bt.Fail(row, broken)
			}
		}
		return share(bt)
	}
	x := b.executor(chain(3, sig), b.batching(sig, full(4), first.instance()), b.inline(sig, second.instance()),
		b.batching(sig, dynamic.Rules{MaxBatch: 8}, third.instance()))
	errs := together(t, b, x, 1, -2, 3, 4)
	for i, err := range errs {
		if failed := errors.Is(err, broken); failed != (i == 1) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	for _, s := range []*batchRecorder{&second, &third} {
		if !slices.Equal(s.reqs, []int{3}) || !slices.Equal(s.rows, []float32{1, 3, 4}) {
			t.Errorf("batches of %v requests, with rows %v", s.reqs, s.rows)
		}
	}
}

// TestBatchesMeetTheRulesOfTheNextStep checks that a batch is split where it exceeds the next step's limit, and
// executes one by one where the step does not batch.
func TestBatchesMeetTheRulesOfTheNextStep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		next  func(b *bench, sig *config.Signature, w *batchRecorder) scheduler.Scheduler
		max   int
		sizes []int
	}{
		{"smaller maximum", func(b *bench, sig *config.Signature, w *batchRecorder) scheduler.Scheduler {
			return b.batching(sig, dynamic.Rules{MaxBatch: 2}, w.instance())
		}, 2, []int{2, 2}},
		{"inline, smaller maximum", func(b *bench, sig *config.Signature, w *batchRecorder) scheduler.Scheduler {
			return b.inline(sig, w.instance())
		}, 2, []int{1, 1, 1, 1}},
		{"preferred size", func(b *bench, sig *config.Signature, w *batchRecorder) scheduler.Scheduler {
			return b.batching(sig, dynamic.Rules{MaxBatch: 8, Preferred: []int32{2}, Delay: time.Hour}, w.instance())
		}, 8, []int{2, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, sig, small := newBench(t), signature("m", 1, 8), signature("m", 1, tc.max)
			w := batchRecorder{does: share}
			p := chain(2, sig)
			p.Nodes[1].Signature = small
			x := b.executor(p, b.batching(sig, full(4), model(share)), tc.next(b, small, &w))
			if err := errors.Join(together(t, b, x, 1, 2, 3, 4)...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w.reqs, tc.sizes) || !slices.Equal(w.rows, []float32{1, 2, 3, 4}) {
				t.Errorf("batches of %v requests, with rows %v; want %v", w.reqs, w.rows, tc.sizes)
			}
		})
	}
}
