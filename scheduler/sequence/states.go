package sequence

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// keep moves the states among a request's outputs to its slot; one that is left out
// stays what it was. The request has those that it sees as well, with memory of their own
// where the next request of the sequence writes over the state's.
func (s *Scheduler) keep(sl *slot, out []tensor.Tensor) (err error) {
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

// A state that a batch put out is a view of the batch's memory, so that the next batch
// of the same slots joins the states without a copy. Slots whose ways part would keep
// each the memory of all. viewers are the slots of a lane that hold views; with every
// batch the lane looks at some of them, and copies the states of those that keep much
// for little.

// moving is a state that is being copied.
type moving struct {
	at      *slot
	arrived uint64 // of the sequence
	state   int
	old     tensor.Tensor // as the slot has it, held
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

// look finds states to copy, as many viewers looked at as may have come with two
// batches. Called with the lock held, when the lane has a batch to execute.
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

// copyMoves makes the copies, and leaves them in the place of what they are of. One that
// cannot be made is given up. Called without the lock.
func (l *lane) copyMoves(a tensor.Allocator) {
	for i := range l.moves {
		m := &l.moves[i]
		if own, err := l.duplicate(a, &m.old); err == nil {
			m.old.Release()
			m.old = own
		}
	}
}

// endMoves gives the copies to the slots that still have the sequence. It was not
// executed meanwhile, for the lane was busy. Called with the lock held.
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

// wasteful reports whether less than half of the memory that a view keeps is held by it
// and its like.
func (sl *slot) wasteful() bool {
	for i := range sl.states {
		if t := &sl.states[i]; isView(t) && 2*t.Buf.Held()*t.Len <= t.Buf.Len() {
			return true
		}
	}
	return false
}

// duplicate returns a copy with memory of its own.
func duplicate(a tensor.Allocator, t *tensor.Tensor) (tensor.Tensor, error) {
	own, err := allocate(a, t.DType, t.Shape, t.Len)
	if err == nil {
		copy(own.Bytes(), t.Bytes())
	}
	return own, err
}

// duplicate is duplicate where the instance is: at a device by its stream.
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
