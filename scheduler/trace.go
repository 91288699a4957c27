package scheduler

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// seats remember what each instance of a model executed last, for the batch that
// comes next.
type seats struct {
	mu   sync.Mutex
	list []seat // guarded by mu
}

// seat is an instance, by its position in the list, with its last batch.
type seat struct {
	inst  uintptr
	batch uint64
	end   int64
}

// sit returns the position of an instance and what it executed last.
func (s *seats) sit(inst backends.Instance) (at int32, last seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(identity(inst))
	if i < 0 {
		i = s.add(identity(inst))
	}
	return int32(i), s.list[i]
}

func (s *seats) find(id uintptr) int {
	return slices.IndexFunc(s.list, func(x seat) bool { return x.inst == id })
}

// add gives an instance a position, that of one that is no more where there is one.
func (s *seats) add(id uintptr) int {
	i := s.find(0)
	if i < 0 {
		i, s.list = len(s.list), append(s.list, seat{})
	}
	s.list[i] = seat{inst: id}
	return i
}

// Forget gives up what traces know of an instance that is removed.
func (r *Runner) Forget(inst backends.Instance) {
	r.seats.mu.Lock()
	defer r.seats.mu.Unlock()
	if i := r.seats.find(identity(inst)); i >= 0 {
		r.seats.list[i] = seat{}
	}
}

// identity tells instances apart that cannot be compared, as functions.
func identity(inst backends.Instance) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&inst))[1] // the word behind the type's
}

// Same reports whether two instances are one. They need not be comparable.
func Same(a, b backends.Instance) bool { return identity(a) == identity(b) }

// rise notes what an instance has executed.
func (s *seats) rise(at int32, batch uint64, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[at].batch, s.list[at].end = batch, end
}

// traced returns the first work of a list that is traced, or nil.
//
// hot: one load per work.
func traced(list *TaskList) *Task {
	for w := list.Head; w != nil; w = w.next {
		if w.Traced != nil {
			return w
		}
	}
	return nil
}

// observe runs a batch of which a member is traced and tells what happened.
func (r *Runner) observe(first *Task, inst backends.Instance, list *TaskList, t *RunLoop) bool {
	x := tracing.Execution{
		Batch: first.Traced.Trace.NextBatch(), Members: int32(list.n), BatchRows: list.rows(), Place: placeOf(inst), Held: list.Head.Held, Native: r.native,
	}
	at, last := r.seats.sit(inst)
	x.Instance, x.Before, x.BeforeEnd = at, last.batch, last.end
	extent, own := int64(0), int64(0)
	for w := list.Head; w != nil; w = w.next {
		x.Newest = max(x.Newest, w.Enqueued)
		extent = max(extent, int64(w.length))
		own += int64(w.Rows) * int64(w.length)
	}
	if own > 0 {
		x.Elements, x.Padding = int64(x.BatchRows)*extent, int64(x.BatchRows)*extent-own
	}
	for w := list.Head; w != nil; w = w.next {
		if w.Traced != nil {
			w.Traced.Execution, w.Traced.Execution.Rows = x, w.Rows
		}
	}
	t.Tick(0) // works may have been queued since the turn looked at the clock
	whole := r.run(inst, list, t)
	end := t.Now()
	r.seats.rise(at, x.Batch, end)
	if whole {
		r.report(first, list, &x)
	}
	return whole
}

// report tells the sinks of a batch that was executed as one.
func (r *Runner) report(first *Task, list *TaskList, x *tracing.Execution) {
	b := r.reports.Get()
	b.Execution, b.Model, b.Version, b.Known, b.Failed, b.Links = *x, r.sig.Model, r.sig.Version, 0, false, nil
	times := &list.Head.Times
	b.Start, b.InputEnd, b.InferEnd, b.End = times.Start, times.InputEnd, times.InferEnd, times.End
	for w := list.Head; w != nil; w = w.next {
		b.Failed = b.Failed || w.Err != nil
		b.Join(w.Trace())
	}
	first.Traced.Trace.Executed(b)
	r.reports.Put(b)
}

// placeOf returns where an instance executes.
func placeOf(inst backends.Instance) tensor.Place {
	if s := backends.StreamOf(inst); s != nil {
		return s.Place()
	}
	return tensor.Place{}
}

// trace records a copy in the traces of the works that it is made for.
func (n *Note) trace(from, to tensor.Place, bytes int) {
	if n.Tasks == nil && n.Trace == nil {
		return
	}
	e := tracing.Event{Kind: tracing.EventCopy, Tensor: n.Tensor, From: from, To: to, Bytes: int64(bytes), Reason: n.Reason.String()}
	e.At, e.Node = telemetry.Now(), -1
	n.Trace.Event(&e)
	for w := n.Tasks; w != nil; w = w.next {
		e.Node = w.Step
		w.Trace().Event(&e)
		if n.One {
			return
		}
	}
}
