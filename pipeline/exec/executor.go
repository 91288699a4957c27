// Package exec runs compiled plans: a pooled run per request, slots for the tensors,
// counters for what is still missing. Nothing on the way of a request looks a name
// up, takes a lock or allocates.
package exec

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/telemetry"
	"tutti/core/tensor"
	"tutti/pipeline/plan"
	"tutti/scheduler"
)

// Executor runs one plan. It implements infer.Inferer for requests whose model and
// version it is.
type Executor struct {
	plan    *plan.Plan
	targets []scheduler.Scheduler // one per node
	stats   *telemetry.Model
	mover   *scheduler.Mover
	runs    sync.Pool
	pending scheduler.Pending
	retired atomic.Bool

	// What a run must count anew: slots with several readers, nodes with several
	// inputs; and the nodes that wait for none.
	shared  []plan.Slot
	joins   []int32
	sources []int32
}

var (
	_ infer.Inferer       = (*Executor)(nil)
	_ scheduler.Responder = (*Executor)(nil)
)

// Settings are what an Executor is made with.
type Settings struct {
	Plan *plan.Plan
	// Targets holds the scheduler of each node's model, in the plan's order.
	Targets []scheduler.Scheduler
	// Stats counts an ensemble's requests; a plain model's are counted where they execute.
	Stats   *telemetry.Model
	Workers *scheduler.Workers
	// Mover is nil where there are no devices.
	Mover *scheduler.Mover

	_ struct{}
}

// New returns an executor of s.Plan.
func New(s Settings) *Executor {
	x := &Executor{plan: s.Plan, targets: s.Targets, stats: s.Stats, mover: s.Mover}
	for i, readers := range s.Plan.Readers {
		if readers > 1 {
			x.shared = append(x.shared, plan.Slot(i))
		}
	}
	for i := range s.Plan.Nodes {
		switch need := s.Plan.Nodes[i].Need; {
		case need == 0:
			x.sources = append(x.sources, int32(i))
		case need > 1:
			x.joins = append(x.joins, int32(i))
		}
	}
	x.runs.New = func() any { return newRun(x, s.Workers) }
	return x
}

// Submit runs req. Unless req is Async it lends the calling goroutine to the work it
// makes ready and returns when the request is answered or nothing is left to do for
// it here.
//
// hot: no allocation in the steady state.
func (x *Executor) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	x.pending.Add(1)
	x.submit(ctx, req, sink)
}

// submit runs a request that is counted in.
func (x *Executor) submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	async := req.Async       // the request is gone when the run ends
	r := x.runs.Get().(*run) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	r.begin(ctx, req, sink)
	if req.Trace != nil {
		r.traceStart()
	}
	if err := r.bind(); err != nil {
		r.reject(err)
		return
	}
	r.start()
	r.turn.Flush()
	if async {
		r.turn.Leave()
	} else {
		r.turn.Lend(r.answered)
	}
	r.drop()
}

// Respond sends one answer of a decoupled model, of which the plan has only one node.
func (*Executor) Respond(w *scheduler.Work, out []tensor.Tensor, final bool) error {
	r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by stage
	return r.send(out, final)
}

// Complete takes executed works back, stores their outputs and enqueues what became
// ready. Of a batch that was executed as one, the works that go on to the same node
// stay one.
//
// hot: no allocation in the steady state.
func (*Executor) Complete(list scheduler.List, t *scheduler.Turn) {
	whole := list.Whole()
	for w := list.Pop(); w != nil; w = list.Pop() {
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by stage
		r.complete(w, t)
	}
	if whole {
		t.Seal()
	}
	t.Flush()
}

// Drain waits until every request is answered.
func (x *Executor) Drain(ctx context.Context) error { return x.pending.Wait(ctx) }

// Plan returns what the executor runs.
func (x *Executor) Plan() *plan.Plan { return x.plan }

// wrap puts the ensembles around a failure of node n into its text, outermost first.
func (x *Executor) wrap(n int32, err error) error {
	if status.CodeOf(err) == status.Cancelled {
		if errors.Is(err, status.ErrDeadline) {
			return status.ErrDeadline
		}
		return status.ErrCancelled
	}
	for _, name := range slices.Backward(x.plan.Nodes[n].Ensembles) {
		err = status.Prefixf(err, "in ensemble '%s', ", name)
	}
	return err
}

// fit applies a node's batch-dimension rule to a tensor on its way in.
func fit(t *tensor.Tensor, f plan.Fit) bool {
	switch f {
	case plan.Strip:
		if t.Shape.Rank() == 0 || t.Shape.Dim(0) != 1 {
			return false
		}
		t.Shape = t.Shape.Tail()
	case plan.Prepend:
		t.Shape = t.Shape.Prepend(1)
	case plan.AsIs:
	}
	return true
}
