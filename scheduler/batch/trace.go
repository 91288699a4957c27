package batch

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// lastBatches remembers the last batch of each instance, for the traces of the next one. It is safe for concurrent use.
type lastBatches struct {
	mu   sync.Mutex
	list []lastBatch // by instance number, guarded by mu
}

type lastBatch struct {
	inst  uintptr // 0 when the number is free
	batch uint64
	end   int64
}

// of returns the number of an instance and its last batch.
func (s *lastBatches) of(inst backends.Instance) (number int32, last lastBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(identity(inst))
	if i < 0 {
		if i = s.find(0); i < 0 {
			i, s.list = len(s.list), append(s.list, lastBatch{})
		}
		s.list[i] = lastBatch{inst: identity(inst)}
	}
	return int32(i), s.list[i]
}

func (s *lastBatches) find(id uintptr) int {
	return slices.IndexFunc(s.list, func(x lastBatch) bool { return x.inst == id })
}

// Forget frees what is kept for an instance that is removed: the number that traces use, and its last batch.
func (r *Runner) Forget(inst backends.Instance) {
	r.paces.forget(inst)
	r.s.Watch.forget(inst)
	r.last.mu.Lock()
	defer r.last.mu.Unlock()
	if i := r.last.find(identity(inst)); i >= 0 {
		r.last.list[i] = lastBatch{}
	}
}

// identity distinguishes instances that are not comparable, such as functions, by their interface's data word.
func identity(inst backends.Instance) uintptr { return (*[2]uintptr)(unsafe.Pointer(&inst))[1] }

// Same reports whether two instances are the same one. They need not be comparable.
func Same(a, b backends.Instance) bool { return identity(a) == identity(b) }

// traced returns the first task of a list that is traced, or nil.
//
// hot: one load per task.
func traced(list *scheduler.TaskList) *scheduler.Task {
	for w := list.Head; w != nil; w = w.Next() {
		if w.Traced != nil {
			return w
		}
	}
	return nil
}

// observe executes a batch with a traced member and records the execution.
func (r *Runner) observe(first *scheduler.Task, inst backends.Instance, list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	x := tracing.Execution{
		Batch: first.Traced.Trace.NextBatch(), Members: int32(list.Len()), BatchRows: list.Rows(), Place: PlaceOf(inst), Held: list.Head.Held, Native: r.s.Native,
		Precision: r.s.Precision,
	}
	at, last := r.last.of(inst)
	x.Instance, x.Before, x.BeforeEnd = at, last.batch, last.end
	extent, unpadded := int64(0), int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		x.Newest = max(x.Newest, w.Enqueued)
		extent = max(extent, int64(w.Length))
		unpadded += int64(w.Rows) * int64(w.Length)
	}
	if unpadded > 0 {
		x.Elements, x.Padding = int64(x.BatchRows)*extent, int64(x.BatchRows)*extent-unpadded
	}
	named, spilled := (*atomic.Int64)(nil), int64(0)
	if s := backends.StreamOf(inst); s != nil {
		named, spilled = r.spilled.Get(), tensor.SpilledBytes(s)
		named.Store(0)
		defer r.spilled.Put(named)
	}
	for w := list.Head; w != nil; w = w.Next() {
		if w.Traced != nil {
			w.Traced.Execution, w.Traced.Execution.Rows, w.Traced.Spilled = x, w.Rows, named
		}
	}
	t.Tick(0) // tasks may have been queued since the clock was read
	whole := r.run(inst, list, t)
	noteOwn(inst, spilled, list, whole)
	end := t.Now()
	r.last.mu.Lock()
	r.last.list[at].batch, r.last.list[at].end = x.Batch, end
	r.last.mu.Unlock()
	if !whole {
		return false
	}
	b, times := r.reports.Get(), &list.Head.Times // for the sinks of traces
	b.Execution, b.Model, b.Version, b.Known, b.Failed, b.Links = x, r.sig.Model, r.sig.Version, 0, false, nil
	b.Start, b.InputEnd, b.InferEnd, b.End = times.Start, times.InputEnd, times.InferEnd, times.End
	for w := list.Head; w != nil; w = w.Next() {
		b.Failed = b.Failed || w.Err != nil
		b.Join(w.Trace())
	}
	if first.Measured.Any() {
		r.placeLater(first.Measured, b, list)
		return true
	}
	first.Traced.Trace.Executed(b)
	r.reports.Put(b)
	return true
}

// placeLater records a batch in the traces of its tasks once its device has executed it. The end of a trace waits for that.
func (r *Runner) placeLater(p telemetry.Pending, b *tracing.Batch, list *scheduler.TaskList) {
	var traces []*tracing.Trace
	for w := list.Head; w != nil; w = w.Next() {
		if t := w.Trace(); t != nil {
			traces = append(traces, t.Expect())
		}
	}
	go func() {
		times, ok := p.Place()
		if b.Device = (telemetry.Times{}); ok {
			b.Device = times
		}
		traces[0].Executed(b)
		for _, t := range traces {
			t.Ran(b.Batch, times, ok)
		}
		r.reports.Put(b)
	}()
}
