package sequence

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

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
// without a copy. When the sequences of a batch separate, each view would keep the memory of all alive. viewers are the
// slots of a lane that hold views. With every batch the lane checks some of them and copies the states of those that
// keep much memory for little data.

// moving is a state that is being copied.
type moving struct {
	at      *slot
	arrived uint64 // of the sequence
	state   int
	old     tensor.Tensor // the slot's tensor, retained
}

// watch adds the slots of the lane's batch to its viewers. Called with the lock held.
func (l *lane) watch() {
	for _, sl := range l.batch {
		if sl != nil && !sl.viewer && sl.views() {
			sl.viewer = true
			l.viewers = append(l.viewers, sl)
		}
	}
}

// look finds states to copy. It checks at most as many viewers as two batches can add. Called with the lock held,
// when the lane has a batch to execute.
func (l *lane) look() {
	for range min(len(l.viewers), 2*len(l.batch)) {
		if l.looked >= len(l.viewers) {
			l.looked = 0
		}
		sl, last := l.viewers[l.looked], len(l.viewers)-1
		switch {
		case sl.seq != nil && sl.seq.state == running:
			l.looked++
			continue
		case sl.seq == nil || !sl.views():
		case sl.wasteful():
			l.move(sl)
		default:
			l.looked++
			continue
		}
		sl.viewer = false
		l.viewers[l.looked], l.viewers[last] = l.viewers[last], nil
		if l.viewers = l.viewers[:last]; last == 0 {
			return
		}
	}
}

func (l *lane) move(sl *slot) {
	for i := range sl.states {
		if t := &sl.states[i]; isView(t) {
			l.moves = append(l.moves, moving{at: sl, arrived: sl.seq.arrived, state: i, old: t.Retain()})
		}
	}
}

// copyMoves makes the copies and replaces the old tensors by them. A state whose copy fails stays a view. Called
// without the lock.
func (l *lane) copyMoves(a tensor.Allocator) {
	for i := range l.moves {
		m := &l.moves[i]
		if own, err := l.duplicate(a, &m.old); err == nil {
			m.old.Release()
			m.old = own
		}
	}
}

// endMoves stores the copies in the slots that still have the same sequence. The lane was busy, so the sequence was
// not executed in between. Called with the lock held.
func (l *lane) endMoves() {
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
	for i := range sl.states {
		if isView(&sl.states[i]) {
			return true
		}
	}
	return false
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
func (l *lane) duplicate(a tensor.Allocator, t *tensor.Tensor) (tensor.Tensor, error) {
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
