package sequence

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// newSlot returns a slot with a work of all the model's ports.
func (s *Scheduler) newSlot() *slot {
	sl := &slot{states: make([]tensor.Tensor, len(s.ports.states)), initial: s.ports.initial}
	s.prepare(&sl.work)
	sl.work.Run, sl.work.To = sl, answerer{s}
	sl.answer = make([]tensor.Tensor, len(s.ports.out))
	return sl
}

func (s *Scheduler) prepare(w *scheduler.Task) {
	w.In = make([]tensor.Tensor, len(s.sig.Inputs))
	w.Out = make([]tensor.Tensor, len(s.sig.Outputs))
	w.Rows = 1
}

// fill makes the slot's work out of its request. The slot is the caller's alone.
func (s *Scheduler) fill(sl *slot) error {
	w, outer, p := &sl.work, sl.outer, s.ports
	w.Meta, w.Ctx, w.Err, w.Rescheduled, w.Enqueued = outer.Meta, outer.Ctx, nil, false, outer.Enqueued
	w.Outputs = outer.Outputs
	if at := sl.lane.at; at.Kind == tensor.Device && outer.Affinity != nil && outer.Want != scheduler.AtHost {
		outer.Affinity.Bind(at) // where the sequence is, there its request's other steps go
	}
	if sl.start {
		if err := s.begin(sl); err != nil {
			return err
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
	if s.book.rules.Iterative {
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
		if s.book.rules.Iterative {
			w.In[port] = outer.In[i].Retain()
		} else {
			w.In[port] = outer.In[i].Move()
		}
	}
	return nil
}

// begin gives the slot the initial states.
func (s *Scheduler) begin(sl *slot) error {
	for i := range sl.states {
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
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nobody is what a row that stands for nobody knows of its request.
var nobody infer.Meta

// null returns the work of a row for nobody, in the shapes of like.
func (s *Scheduler) null(l *lane, row int, like *scheduler.Task) (*scheduler.Task, error) {
	for len(l.nulls) <= row {
		w := &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{Placeholder: true, Meta: &nobody, Ctx: context.Background(), To: answerer{s}},
		}
		s.prepare(w)
		l.nulls = append(l.nulls, w)
	}
	if l.zeros == nil {
		l.zeros = make([]tensor.Tensor, len(s.sig.Inputs))
	}
	w := l.nulls[row]
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

// fillAll makes the list of works that an instance executes; it has no request when
// none could be filled.
func (s *Scheduler) fillAll(l *lane) (list scheduler.TaskList) {
	var like *scheduler.Task
	for _, sl := range l.batch {
		if sl == nil {
			continue
		}
		if err := s.fill(sl); err != nil {
			s.unfilled(sl, err)
		} else if like == nil {
			like = &sl.work
		}
	}
	if like == nil {
		return list
	}
	for row, sl := range l.batch {
		if sl != nil && sl.work.Err == nil {
			list.Push(&sl.work)
			continue
		}
		if s.book.rules.Oldest {
			continue
		}
		w, err := s.null(l, row, like)
		if err != nil {
			s.abandon(l, &list, err)
			return list
		}
		list.Push(w)
	}
	return list
}

// abandon fails a batch that cannot be completed.
func (s *Scheduler) abandon(l *lane, list *scheduler.TaskList, err error) {
	for list.Pop() != nil {
		continue // the works are the slots' and the lane's
	}
	for _, w := range l.nulls {
		tensor.ReleaseAll(w.In)
	}
	for _, sl := range l.batch {
		if sl != nil && sl.work.Err == nil {
			s.unfilled(sl, err)
		}
	}
}

// unfilled fails a request whose work cannot be made.
func (s *Scheduler) unfilled(sl *slot, err error) {
	w, now := &sl.work, telemetry.Now()
	tensor.ReleaseAll(w.In)
	w.Err, w.Times = err, telemetry.Times{Start: now, InputEnd: now, InferEnd: now, End: now}
	s.stats.Failed(telemetry.Backend, now-w.Enqueued)
}

// hand gives a finished slot's outputs to its request, and the states to the slot. It
// reports whether the request is over.
func (s *Scheduler) hand(sl *slot) bool {
	w, outer := &sl.work, sl.outer
	if w.Err == nil {
		w.Err = s.keep(sl, w.Out)
	}
	if sl.again = w.Rescheduled && outer.Expired(w.Times.End) == nil; sl.again {
		tensor.ReleaseAll(w.Out)
		return false
	}
	if w.Rescheduled {
		w.Err = errGone
		s.stats.Failed(reasonOf(w.Err), w.Times.End-w.Enqueued)
	}
	outer.Err, outer.Times, outer.ResponseParams = w.Err, w.Times, w.ResponseParams
	if w.Err == nil {
		for i, port := range s.ports.out {
			outer.Out[i] = w.Out[port].Move()
		}
	}
	tensor.ReleaseAll(w.Out)
	tensor.ReleaseAll(outer.In)
	return true
}
