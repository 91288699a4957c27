package sequence

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// newSlot returns a slot with a task of all ports of the model.
func (s *Scheduler) newSlot() *slot {
	sl := &slot{states: make([]tensor.Tensor, len(s.ports.states)), initial: s.ports.initial}
	s.prepare(&sl.task)
	sl.task.Run, sl.task.To = sl, responder{s}
	sl.outputs = make([]tensor.Tensor, len(s.ports.out))
	return sl
}

func (s *Scheduler) prepare(w *scheduler.Task) {
	w.In = make([]tensor.Tensor, len(s.sig.Inputs))
	w.Out = make([]tensor.Tensor, len(s.sig.Outputs))
	w.Rows = 1
}

// fill sets the slot's task from its request. The caller must own the slot.
func (s *Scheduler) fill(sl *slot) error {
	w, outer, p := &sl.task, sl.outer, s.ports
	w.Meta, w.Ctx, w.Err, w.Rescheduled, w.Enqueued = outer.Meta, outer.Ctx, nil, false, outer.Enqueued
	w.Outputs, w.Measured = outer.Outputs, telemetry.Pending{}
	if at := sl.instance.at; at.Kind == tensor.Device && outer.Affinity != nil && outer.Want != scheduler.AtHost {
		outer.Affinity.Bind(at) // the request's other steps execute at the sequence's device
	}
	if sl.start {
		for i := range sl.states { // the initial states
			first := s.ports.initial[i].Retain()
			if s.ports.states[i].over {
				own, err := duplicate(s.ports.alloc, &first)
				first.Release()
				if err != nil {
					return err
				}
				first = own
			}
			sl.states[i].Release()
			sl.states[i] = first
		}
	}
	if p.corrid >= 0 {
		if !sl.corrid.Present() {
			var err error
			if sl.corrid, err = p.correlation(sl.seq.id); err != nil {
				return err
			}
		}
		w.In[p.corrid] = sl.corrid.Retain()
	}
	end := outer.Meta.Sequence.End
	if s.batcher.rules.Iterative {
		sl.meta = *outer.Meta
		sl.meta.Sequence = infer.Sequence{ID: sl.seq.id.number, Name: sl.seq.id.name, Start: sl.start, End: end}
		w.Meta = &sl.meta
	}
	for i := range p.controls {
		c := &p.controls[i]
		on := c.kind == kindReady || c.kind == kindStart && sl.start || c.kind == kindEnd && end
		w.In[c.port] = c.value[number(on)].Retain()
	}
	for i, st := range p.states {
		w.In[st.in] = sl.states[i].Retain()
	}
	for i, port := range p.in {
		if s.batcher.rules.Iterative {
			w.In[port] = outer.In[i].Retain()
		} else {
			w.In[port] = outer.In[i].Move()
		}
	}
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// placeholderMeta is the metadata of placeholder rows.
var placeholderMeta infer.Meta

// placeholder returns the task of a placeholder row, with zeros in the shapes of like.
func (s *Scheduler) placeholder(l *instance, row int, like *scheduler.Task) (*scheduler.Task, error) {
	for len(l.placeholders) <= row {
		w := &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{Placeholder: true, Meta: &placeholderMeta, Ctx: context.Background(), To: responder{s}},
		}
		s.prepare(w)
		l.placeholders = append(l.placeholders, w)
	}
	if l.zeros == nil {
		l.zeros = make([]tensor.Tensor, len(s.sig.Inputs))
	}
	w := l.placeholders[row]
	for i := range w.In {
		if !like.In[i].Present() {
			continue
		}
		z := &l.zeros[i]
		if !z.Present() || !z.Shape.Equal(like.In[i].Shape) {
			fresh, err := zero(s.ports.alloc, like.In[i].DType, like.In[i].Shape)
			if err != nil {
				tensor.ReleaseAll(w.In)
				return nil, err
			}
			z.Release()
			*z = fresh
		}
		w.In[i] = z.Retain()
	}
	for i := range s.ports.controls {
		c := &s.ports.controls[i]
		w.In[c.port].Release()
		w.In[c.port] = c.value[0].Retain()
	}
	return w, nil
}

// fillAll returns the tasks that an instance executes; empty when no request could be filled.
func (s *Scheduler) fillAll(l *instance) (list scheduler.TaskList) {
	var like *scheduler.Task
	for _, sl := range l.batch {
		if sl == nil {
			continue
		}
		if err := s.fill(sl); err != nil {
			s.failUnfilled(sl, err)
		} else if like == nil {
			like = &sl.task
		}
	}
	if like == nil {
		return list
	}
	for row, sl := range l.batch {
		if sl != nil && sl.task.Err == nil {
			list.Push(&sl.task)
			continue
		}
		if s.batcher.rules.Oldest {
			continue
		}
		w, err := s.placeholder(l, row, like)
		if err != nil {
			s.abandon(l, &list, err)
			return list
		}
		list.Push(w)
	}
	return list
}

// abandon fails all requests of a batch whose placeholder rows cannot be allocated.
func (s *Scheduler) abandon(l *instance, list *scheduler.TaskList, err error) {
	for list.Pop() != nil {
		continue // the slots and the instance own the tasks
	}
	for _, w := range l.placeholders {
		tensor.ReleaseAll(w.In)
	}
	for _, sl := range l.batch {
		if sl != nil && sl.task.Err == nil {
			s.failUnfilled(sl, err)
		}
	}
}

// failUnfilled fails a request whose task cannot be filled.
func (s *Scheduler) failUnfilled(sl *slot, err error) {
	w, now := &sl.task, telemetry.Now()
	tensor.ReleaseAll(w.In)
	w.Err, w.Times = err, telemetry.Times{Start: now, InputEnd: now, InferEnd: now, End: now}
	s.stats.Failed(telemetry.Backend, now-w.Enqueued)
}

// deliver moves a slot's outputs to its request and its states to the slot; false for one to execute once more.
func (s *Scheduler) deliver(sl *slot) bool {
	w, outer := &sl.task, sl.outer
	if w.Err == nil {
		w.Err = s.keepStates(sl, w.Out)
	}
	if sl.again = w.Rescheduled && outer.Expired(w.Times.End) == nil; sl.again {
		tensor.ReleaseAll(w.Out)
		return false
	}
	if w.Rescheduled {
		w.Err = status.ErrCancelled
		s.stats.Failed(telemetry.Canceled, w.Times.End-w.Enqueued)
	}
	outer.Err, outer.Times, outer.Measured, outer.ResponseParams = w.Err, w.Times, w.Measured, w.ResponseParams
	if w.Err == nil {
		for i, port := range s.ports.out {
			outer.Out[i] = w.Out[port].Move()
		}
	}
	tensor.ReleaseAll(w.Out)
	tensor.ReleaseAll(outer.In)
	return true
}

// keepStates moves the states among a request's outputs to its slot. An absent output leaves the state unchanged.
// States that are also public outputs are shared with the request, or copied where the next request of the sequence
// overwrites the state's memory.
func (s *Scheduler) keepStates(sl *slot, out []tensor.Tensor) (err error) {
	for i, st := range s.ports.states {
		t := &out[st.out]
		if !t.Present() {
			continue
		}
		sl.states[i].Release()
		sl.states[i] = t.Move()
		switch {
		case !st.shown:
		case st.over && sl.states[i].Buf.Place().Kind != tensor.Device:
			if *t, err = duplicate(s.ports.alloc, &sl.states[i]); err != nil {
				return err
			}
		default:
			*t = sl.states[i].Retain()
		}
	}
	return nil
}

// A state that a batch wrote is a view of the batch's memory, so that the next batch of the same slots joins the states
// without a copy. When the sequences of a batch separate, each view would keep the memory of all alive. withViews are the
// slots of an instance that hold views. With every batch the instance checks some of them and copies the states of those that
// keep much memory for little data.

// moving is a state that is being copied.
type moving struct {
	at      *slot
	arrived uint64 // of the sequence
	state   int
	old     tensor.Tensor // the slot's tensor, retained
}

// watch adds the slots of the instance's batch to withViews. Called with the lock held.
func (l *instance) watch() {
	for _, sl := range l.batch {
		if sl != nil && !sl.hasViews && sl.views() {
			sl.hasViews = true
			l.withViews = append(l.withViews, sl)
		}
	}
}

// look finds states to copy among as many withViews as two batches can add. The lock is held.
func (l *instance) look() {
	for range min(len(l.withViews), 2*len(l.batch)) {
		if l.looked >= len(l.withViews) {
			l.looked = 0
		}
		sl, last := l.withViews[l.looked], len(l.withViews)-1
		switch {
		case sl.seq != nil && sl.seq.state == running:
			l.looked++
			continue
		case sl.seq == nil || !sl.views():
		case sl.wasteful():
			for i := range sl.states {
				if t := &sl.states[i]; isView(t) {
					l.moves = append(l.moves, moving{at: sl, arrived: sl.seq.arrived, state: i, old: t.Retain()})
				}
			}
		default:
			l.looked++
			continue
		}
		sl.hasViews = false
		l.withViews[l.looked], l.withViews[last] = l.withViews[last], nil
		if l.withViews = l.withViews[:last]; last == 0 {
			return
		}
	}
}

// copyMoves replaces the old tensors by copies. A state whose copy fails stays a view. Called without the lock.
func (l *instance) copyMoves(a tensor.Allocator) {
	for i := range l.moves {
		m := &l.moves[i]
		if own, err := l.duplicate(a, &m.old); err == nil {
			m.old.Release()
			m.old = own
		}
	}
}

// countMoves counts the copies of states in device memory.
func (s *Scheduler) countMoves(l *instance) {
	for i := range l.moves {
		m := &l.moves[i]
		if at := m.old.Buf.Place(); at.Kind == tensor.Device && !isView(&m.old) {
			name := s.sig.Inputs[s.ports.states[m.state].in].Name
			s.stats.Copies.Count(name, at, at, telemetry.ForState, 1, m.old.Len)
		}
	}
}

// endMoves stores the copies in the slots that still have the same sequence. Called with the lock held.
func (l *instance) endMoves() {
	for i := range l.moves {
		m := &l.moves[i]
		if seq := m.at.seq; seq != nil && seq.arrived == m.arrived {
			m.at.states[m.state], m.old = m.old, m.at.states[m.state]
		}
		m.old.Release()
	}
	l.moves = l.moves[:0]
}

// views reports whether any of the slot's states is a part of something larger.
func (sl *slot) views() bool {
	return slices.ContainsFunc(sl.states, func(t tensor.Tensor) bool { return isView(&t) })
}

func isView(t *tensor.Tensor) bool { return t.Present() && t.Len < t.Buf.Len() }

// wasteful reports whether views like this one hold less than half of the memory that they keep alive.
func (sl *slot) wasteful() bool {
	for i := range sl.states {
		if t := &sl.states[i]; isView(t) && 2*t.Buf.Held()*t.Len <= t.Buf.Len() {
			return true
		}
	}
	return false
}

// duplicate returns a copy in newly allocated memory.
func duplicate(a tensor.Allocator, t *tensor.Tensor) (tensor.Tensor, error) {
	own, err := allocate(a, t.DType, t.Shape, t.Len)
	if err == nil {
		copy(own.Bytes(), t.Bytes())
	}
	return own, err
}

// duplicate copies t where the instance is: at a device on the instance's stream.
func (l *instance) duplicate(a tensor.Allocator, t *tensor.Tensor) (tensor.Tensor, error) {
	if t.Buf.Place().Kind != tensor.Device {
		return duplicate(a, t)
	}
	st := backends.StreamOf(l.inst)
	if st == nil || st.Place() != t.Buf.Place() {
		return tensor.Tensor{}, status.Errorf(status.Internal, "a state is at %s, expected it where its instance is", t.Buf.Place())
	}
	if e := t.Buf.Ready(); e != nil {
		if err := e.WaitOn(st); err != nil {
			return tensor.Tensor{}, err
		}
	}
	own, err := allocate(st, t.DType, t.Shape, t.Len)
	if err != nil {
		return own, err
	}
	if err := st.Copy(own.Buf, 0, t.Buf, t.Off, t.Len); err != nil {
		own.Release()
		return tensor.Tensor{}, err
	}
	end := st.Record()
	own.Buf.SetReady(end)
	t.Buf.UsedUntil(end)
	return own, nil
}
