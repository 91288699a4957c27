package exec

import (
	"math"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// meetings are where the groups of a fan-out wait for each other: at the nodes of plan.Part.Meets a task is held until each group has reached the
// node, or has passed it because a condition holds for no row. They enter the scheduler together then, which makes as few batches of them as it
// can. A full batch is not held.
//
// It cannot hang. Of the held tasks, take those at the first node in the plan's order. The groups that are not there have not been at any node
// before it where tasks are held, so they have a task that executes. Groups without room (itemLimit) have not started, and nobody waits for
// them. Once the request has failed, groups no longer arrive everywhere, so every task that ends drops what is held.
type meetings struct {
	few bool // one group or no such node: nothing is held

	mu      sync.Mutex
	started int32     // groups, guarded by mu
	at      []meeting // per node, guarded by mu
}

// meeting is what happened at one node.
type meeting struct {
	arrived int32 // groups, with a task or without
	rows    int32 // of held
	held    scheduler.TaskList
}

// begin prepares for a fan-out whose part has the given number of nodes, 0 if none of them holds tasks.
func (m *meetings) begin(nodes, groups int) {
	if m.few = nodes == 0 || groups < 2; m.few {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started = 0; m.at == nil {
		m.at = make([]meeting, nodes)
	}
	clear(m.at)
}

// join counts a group that starts.
func (m *meetings) join() {
	if m.few {
		return
	}
	m.mu.Lock()
	m.started++
	m.mu.Unlock()
}

// arrive counts a group in at node n, with its task or with nil, and returns the tasks that are ready: those that fill a batch, or all when
// every group has arrived.
func (m *meetings) arrive(n int32, task *scheduler.Task, full int32) (ready scheduler.TaskList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &m.at[n]
	at.arrived++
	if task != nil {
		at.held.Push(task)
		at.rows += task.Rows
	}
	if at.arrived == m.started || at.rows >= full {
		ready, at.held, at.rows = at.held, scheduler.TaskList{}, 0
	}
	return ready
}

// takeAll returns every held task.
func (m *meetings) takeAll() (list scheduler.TaskList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.at {
		for w := m.at[i].held.Pop(); w != nil; w = m.at[i].held.Pop() {
			list.Push(w)
		}
		m.at[i].rows = 0
	}
	return list
}

// meetings returns those of the fan-out of a run that executes a group.
func (r *run) meetings() *meetings {
	g := &r.group
	return &g.parent.fans[g.parent.x.fanOuts[g.node].at].meetings
}

// meet holds a task that is ready until those of the other groups are.
func (r *run) meet(task *scheduler.Task, loop *scheduler.RunLoop) {
	m := r.meetings()
	if m.few {
		loop.Stage(r.x.targets[task.Node], task)
		return
	}
	r.x.stageAll(m.arrive(task.Node, task, r.x.meets[task.Node]), loop)
}

// passes tells the other groups that this one does not execute node n.
func (r *run) passes(n int32, loop *scheduler.RunLoop) {
	if r.x.meets == nil || r.x.meets[n] == 0 {
		return
	}
	if m := r.meetings(); !m.few {
		r.x.stageAll(m.arrive(n, nil, math.MaxInt32), loop)
	}
}

// stageAll stages tasks that were held.
func (x *Executor) stageAll(list scheduler.TaskList, loop *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		loop.Stage(x.targets[w.Node], w)
	}
}

// dropHeld ends the held tasks of a request that has failed.
func (r *run) dropHeld(loop *scheduler.RunLoop) {
	m := r.meetings()
	if m.few {
		return
	}
	for list := m.takeAll(); list.Len() > 0; {
		w := list.Pop()
		c := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
		tensor.ReleaseAll(w.In)
		c.taskDone(0, loop)
	}
}
