package batch

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// Serial returns how many tasks Run executes one after the other in one call of the instance, for a scheduler that forms no batches.
//
// hot: a comparison for any other model.
func (r *Runner) Serial() int {
	if r.s.Serial == nil || r.layout != nil || !r.s.Mover.Idle() {
		return 1
	}
	return r.s.Serial()
}

// SerialList reports whether Run executes a list as such a call.
func (r *Runner) SerialList(list *scheduler.TaskList) bool {
	return r.s.Serial != nil && list.Len() > 1
}

// runSerial executes several tasks one after the other in one call of the instance. A task is counted as a batch of its own, with its share
// of the time. Those that the instance has left are marked as Unexecuted.
//
// Only the first task is executed, alone, if the model allows no more, and if the call fails as a whole, for example because the model's
// process has exited. After a failure each of the others gets a call of its own, too.
func (r *Runner) runSerial(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	if list.Head.Apart || traced(list) != nil || r.Serial() == 1 {
		r.runHead(inst, list, t, list.Head.Apart)
		return false
	}
	pooled := r.batches.Get()
	defer r.recycle(pooled)
	b := &pooled.Batch
	r.setPlace(b, inst)
	b.Serial, b.Rows = true, 0
	for w := list.Head; w != nil; w = w.Next() {
		b.Requests = append(b.Requests, member(w, 0))
		b.Rows += int(w.Rows)
	}
	start := t.Now()
	if err := r.execute(context.Background(), inst, b); err != nil {
		t.Tick(0) // the failed call took time
		r.runHead(inst, list, t, true)
		return false
	}
	end := telemetry.Now()
	t.Tick(end)
	executed := slices.IndexFunc(b.Requests, func(q backends.Request) bool { return q.Unexecuted })
	switch executed {
	case -1:
		executed = len(b.Requests)
	case 0: // against the contract
		r.runHead(inst, list, t, true)
		return false
	}
	r.takeRequestOutputs(b, list, nil)
	share := (end - start) / int64(executed)
	times := telemetry.Times{Start: end - share, InputEnd: end - share, InferEnd: end, End: end} // the others' shares are waiting time
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		if w.Unexecuted = i >= executed; w.Unexecuted {
			continue
		}
		w.Times = times
		r.countOne(nil, inst, w, int(w.Rows), r.finish(w, &b.Requests[i], nil), nil)
		i++
	}
	return true
}

// runHead executes the first task of a list alone, and marks the others as Unexecuted. If apart is set, each of them is to be executed alone.
func (r *Runner) runHead(inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop, apart bool) {
	var one scheduler.TaskList
	one.Push(list.Pop())
	one.Head.Apart = false
	r.Run(inst, &one, t)
	for w := list.Pop(); w != nil; w = list.Pop() {
		w.Unexecuted, w.Apart = true, apart
		one.Push(w)
	}
	*list = one
}
