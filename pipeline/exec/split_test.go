package exec_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// splits is a sink that splits every trace and checks the result.
type splits struct {
	t     *testing.T
	plan  *plan.Plan
	began int64

	mu      sync.Mutex
	traces  int                      // guarded by mu
	copies  int                      // guarded by mu
	batches map[uint64]tracing.Batch // guarded by mu
}

func (s *splits) Batch(b *tracing.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[b.Batch] = *b
}

func (s *splits) Trace(x *tracing.Trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces++
	r := x.Record()
	start, end := r.Bounds()
	sum := int64(0)
	for _, p := range tracing.Split(r) {
		sum += p.To - p.From
	}
	if sum != end-start || start < s.began || end > telemetry.Now() {
		s.t.Errorf("the parts of a request from %d to %d are %d ns", start, end, sum)
	}
	for i := range r.Steps {
		s.step(r, &r.Steps[i])
	}
	for i := range r.Events {
		if e := &r.Events[i]; e.Kind == tracing.EventCopy && e.Bytes > 0 && e.From != e.To && e.Reason != "" {
			s.copies++
		}
	}
	if !r.Failed {
		s.critical(r)
	}
}

// step checks that the events of a step are in order, and that it waited for a step whose output it reads.
func (s *splits) step(r *tracing.Record, x *tracing.Step) {
	times := []int64{x.Ready, x.Enqueued, x.Done}
	if x.Batch != 0 {
		times = []int64{x.Ready, x.Enqueued, x.Start, x.InputEnd, x.InferEnd, x.End, x.Done}
		if b, ok := s.batches[x.Batch]; !x.Failed && (!ok || b.BatchRows != x.BatchRows || !slices.Contains(b.Traces[:b.Known], r.ID) && b.Known == b.Members) {
			s.t.Errorf("step %+v was in batch %+v", x, b)
		}
	}
	if !slices.IsSorted(times) {
		s.t.Errorf("step %d has times %v", x.Node, times)
	}
	if x.After < 0 {
		return
	}
	if out := s.plan.Nodes[x.After].Out; !slices.ContainsFunc(s.plan.Nodes[x.Node].In, func(in plan.Slot) bool { return slices.Contains(out, in) }) {
		s.t.Errorf("step %d waited for %d, from which it reads nothing", x.Node, x.After)
	}
}

// critical checks that the critical path starts at a step without a predecessor, ends at the last step, and that
// each step follows the predecessor which finished last.
func (s *splits) critical(r *tracing.Record) {
	path := tracing.CriticalSteps(r)
	if len(path) == 0 || r.Steps[path[len(path)-1]].After >= 0 {
		s.t.Errorf("the critical path of %d steps is %v", len(r.Steps), path)
		return
	}
	for _, i := range path[1:] {
		if r.Steps[i].Done > r.Steps[path[0]].Done {
			s.t.Errorf("step %d was done after the last one", i)
		}
	}
}

// TestSplitOfRuns checks the time split of requests through random pipelines, batched and alone, also when they
// fail.
func TestSplitOfRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible by seed
			b, sig := newBench(t), sumSignature()
			d := newDAG(rng, 1+rng.IntN(40), sig)
			if seed%5 == 4 {
				d.fails = rng.IntN(len(d.plan.Nodes))
			}
			s := &splits{t: t, plan: d.plan, began: telemetry.Now(), batches: map[uint64]tracing.Batch{}}
			tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{s}, All: true})
			if err != nil {
				t.Fatal(err)
			}
			x := d.build(b, rng, sig)
			var wg sync.WaitGroup
			const requests = 30
			for r := range requests {
				req := b.request(float32(r))
				req.Trace = tr.Sample("dag", 1, "")
				wg.Go(func() {
					call := infer.NewCall()
					x.Submit(t.Context(), req, call)
					if resp, err := call.Wait(); err == nil {
						resp.Release()
					} else if d.fails < 0 {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.traces != requests {
				t.Errorf("%d traces of %d requests", s.traces, requests)
			}
			if (s.copies > 0) != (b.device != nil) {
				t.Errorf("%d copies are recorded", s.copies)
			}
		})
	}
}

// noSink is a sink that discards traces.
type noSink struct{}

func (noSink) Trace(*tracing.Trace) {}
func (noSink) Batch(*tracing.Batch) {}

// traced is an executor that traces every request.
type traced struct {
	infer.Inferer
	tracer *tracing.Tracer
}

func (x traced) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	req.Trace = x.tracer.Sample("e", 1, req.ID)
	x.Inferer.Submit(ctx, req, sink)
}

// TestAllocsOfTraced checks the allocation budget of traced requests. It is not parallel: it counts the allocations
// of the process.
func TestAllocsOfTraced(t *testing.T) {
	bn := budgetBench(t)
	sig := signature("m", 1, 8)
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{noSink{}}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]func() scheduler.Scheduler{
		"inline": func() scheduler.Scheduler { return bn.inline(sig, share) },
		"queued": func() scheduler.Scheduler { return bn.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share)) },
	} {
		x := bn.executor(chain(8, sig), target(), target(), target(), target(), target(), target(), target(), target())
		if n := allocations(t, bn, traced{x, tr}); n != 0 {
			t.Errorf("%s: %v allocations a traced request, expected none", name, n)
		}
	}
}

func BenchmarkTraced(b *testing.B) {
	bn := newHostBench(b)
	sig := signature("m", 1, 8)
	x := bn.executor(chain(8, sig), slices.Repeat([]scheduler.Scheduler{bn.inline(sig, share)}, 8)...)
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{noSink{}}, All: true})
	if err != nil {
		b.Fatal(err)
	}
	for name, x := range map[string]infer.Inferer{"off": x, "on": traced{x, tr}} {
		b.Run(name, func(b *testing.B) {
			input := bn.floats([]float32{1})
			defer input.Release()
			b.ReportAllocs()
			for b.Loop() {
				req := infer.NewRequest()
				req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: input.Retain()})
				call := infer.NewCall()
				x.Submit(b.Context(), req, call)
				resp, err := call.Wait()
				if err != nil {
					b.Fatal(err)
				}
				resp.Release()
			}
		})
	}
}
