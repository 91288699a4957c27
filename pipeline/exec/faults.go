package exec

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/guarded"
)

// Failures of steps. A step with a timeout, retries or a circuit breaker has a scheduler of package guarded in front of its model's. When
// it fails for good, its request fails, unless the step has a fallback or an optional result: the row set of those for which it failed then
// has all rows, that of those for which it succeeded none, and the request goes on.

// stepFaults are the failures that did not fail a request. Those of its groups of items are the root's, too.
type stepFaults struct {
	faultMu sync.Mutex
	causes  []cause      // guarded by faultMu
	told    infer.Params // parameters of the response, guarded by faultMu until the last task is done
}

// cause is why the fallback of a step runs.
type cause struct {
	of  string
	err error
}

// guard returns the scheduler of node i: s, or one with the node's timeout, retries and circuit breaker in front of it.
func (x *Executor) guard(i int, s scheduler.Scheduler) scheduler.Scheduler {
	n := &x.plan.Nodes[i]
	if !n.Fault.Guarded() {
		return s
	}
	return guarded.New(guarded.Settings{
		Inner: s, Step: n.Name, Timeout: n.Fault.Timeout, Retries: n.Fault.Retries, Breaker: n.Fault.Breaker, Workers: x.workers,
	})
}

// guards puts guards in front of the targets that need them.
func (x *Executor) guards() {
	var list []scheduler.Scheduler
	for i := range x.plan.Nodes {
		if x.plan.Nodes[i].Fault.Guarded() {
			if list == nil {
				list = append(list, x.targets...)
			}
			list[i] = x.guard(i, x.targets[i])
		}
	}
	if list != nil {
		x.targets = list
	}
}

// taskFailed ends a task with an error: it fails the request, or has the fallback or the optional result take the place of the outputs. It
// returns how many tasks that staged.
func (r *run) taskFailed(task *scheduler.Task, loop *scheduler.RunLoop) int32 {
	n := &r.x.plan.Nodes[task.Node]
	f := n.Fault
	if f == nil || !f.Absorbed || !guarded.Counts(task.Err) {
		r.fail(task.Node, r.explain(n, task.Err))
		return 0
	}
	r.decide(n, task.Rows, false)
	r.note(n, task)
	return r.deliverOutputs(n, task.Step, loop)
}

// explain adds to the failure of a fallback why it ran.
func (r *run) explain(n *plan.Node, err error) error {
	if n.FallbackOf == "" || status.CodeOf(err) == status.Cancelled {
		return err
	}
	faults := &r.root.stepFaults
	faults.faultMu.Lock()
	defer faults.faultMu.Unlock()
	for _, c := range faults.causes {
		if c.of == n.FallbackOf {
			return status.Prefixf(err, "the fallback of step '%s', which failed with '%s', failed too: ", c.of, status.Line(c.err.Error()))
		}
	}
	return err
}

// note records that a step failed and what takes its place, for the response and the trace.
func (r *run) note(n *plan.Node, task *scheduler.Task) {
	f := n.Fault
	r.x.flows.replacements[task.Node].Used.Add(1)
	key, value := "optional_result."+f.Of, status.CodeOf(task.Err).String()
	next := "its optional result is used"
	if f.Fallback != "" {
		key, value = "fallback."+f.Of, f.Fallback
		next = "its fallback '" + f.Fallback + "' runs"
	}
	r.root.tell(infer.Param{Key: key, Kind: infer.ParamString, String: value}, &cause{f.Of, task.Err})
	if r.req.Trace != nil {
		r.traceRows(tracing.EventFault, task.Node, "'"+n.Name+"' failed, "+next+": "+status.Line(task.Err.Error()))
	}
}

// countRetries is the result hook of steps with retries: the response says how often the step was repeated.
func (r *run) countRetries(task *scheduler.Task, _ *scheduler.RunLoop) {
	if task.Retries == 0 {
		return
	}
	r.root.tell(infer.Param{Key: "retries." + r.x.plan.Nodes[task.Node].Fault.Of, Kind: infer.ParamInt, Int: int64(task.Retries)}, nil)
}

// tell adds a parameter to the response, and notes why. A step that runs for several groups of items has one parameter: the retries of all,
// or what the first failure brought.
func (s *stepFaults) tell(p infer.Param, why *cause) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	if why != nil {
		s.causes = append(s.causes, *why)
	}
	for i := range s.told {
		if s.told[i].Key == p.Key {
			s.told[i].Int += p.Int
			return
		}
	}
	s.told = append(s.told, p)
}

// stepSucceeded is the result hook of steps whose failures are absorbed.
func (r *run) stepSucceeded(task *scheduler.Task, _ *scheduler.RunLoop) {
	r.decide(&r.x.plan.Nodes[task.Node], task.Rows, true)
}

// decide gives one of the two row sets of a step all of its rows, and the other none. rows are those of the step's task.
func (r *run) decide(n *plan.Node, rows int32, ok bool) {
	of := rows
	if n.Signature.MaxBatch == 0 {
		of = 1
	}
	if _, all := r.rowsOf(n.Rows); !all {
		of = r.setSize(n.Rows)
	}
	r.setRows(n.Fault.Succeeded, ok, of)
	if n.Fault.Failed != 0 {
		r.setRows(n.Fault.Failed, !ok, of)
	}
}

// setRows gives a row set all rows of its parent or none, of a request of the given number of rows.
func (r *run) setRows(set int32, all bool, of int32) {
	s := &r.sets[set]
	s.all, s.rows, s.of = all, s.rows[:0], of
}

// skipOutcomes gives the row sets of a step that is skipped the rows of their parent: none.
func (r *run) skipOutcomes(n *plan.Node) {
	switch {
	case n.Fault != nil && n.Fault.Absorbed:
		r.decide(n, 0, true)
		if n.Fault.Failed != 0 {
			r.setRows(n.Fault.Failed, true, 0)
		}
	case n.Operation != nil && n.Operation.Absent:
		r.setRows(n.Operation.Chooses, true, 0)
	}
}

// deliverOutputs delivers the outputs of a node, absent or not, and what its fallback waits for.
func (r *run) deliverOutputs(n *plan.Node, after int32, loop *scheduler.RunLoop) (staged int32) {
	if r.root.early.on {
		r.sendEarly(n.Out)
	}
	for _, s := range n.Out {
		if s != plan.None {
			staged += r.deliver(s, after, loop)
		}
	}
	if n.Fault != nil && n.Fault.Waits != plan.None {
		staged += r.deliver(n.Fault.Waits, after, loop)
	}
	return staged
}

// lacks reports whether a join writes nothing, because neither the step nor its fallback wrote anything, and notes it.
func (r *run) lacks(node *plan.Node, in []tensor.Tensor) bool {
	if !node.Operation.Absent {
		return false
	}
	written := slices.ContainsFunc(in, func(t tensor.Tensor) bool { return t.Present() })
	r.setRows(node.Operation.Chooses, written, r.rowsIn(node, in))
	return !written
}

// endFaults forgets the failures of a run. The response keeps the parameters.
func (r *run) endFaults() {
	if r.causes != nil || r.told != nil {
		r.causes, r.told = nil, nil
	}
}
