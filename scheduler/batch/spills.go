package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// pinnedFull is the spill of a copy for which the pool of pinned memory had no room.
var pinnedFull = tensor.Spill{
	From: tensor.Place{Kind: tensor.Pinned}, Reason: "the pool of pinned memory is full, see --pinned-memory-pool-byte-size",
}

// spilled records, in the traces of the tasks that n describes, that b is slower memory than was asked of a pool at want.
//
// hot: no allocation when the request is not traced.
func (n *Note) spilled(b *tensor.Buffer, want tensor.Place) {
	if n.Reason == telemetry.ForCapture || !n.traced() {
		return
	}
	why := b.Spill()
	if why == nil && want == pinnedFull.From && b.Place().Kind == tensor.Host {
		why = &pinnedFull
	}
	if why == nil || b.Len() == 0 {
		return
	}
	e := spillEvent(n.Tensor, int64(b.Len()), why)
	if n.Trace != nil {
		n.Trace.Event(&e)
	}
	counted := false
	for w := n.Tasks; w != nil; w = w.Next() {
		if w.Traced != nil {
			e.Node = w.Step
			w.Traced.Trace.Event(&e)
			if all := w.Traced.Spilled; all != nil && !counted && want.Kind == tensor.Device {
				all.Add(e.Bytes)
				counted = true
			}
		}
		if n.One {
			break
		}
	}
}

// spillEvent returns the event of a spill, of the request.
func spillEvent(name string, bytes int64, why *tensor.Spill) tracing.Event {
	return tracing.Event{
		Kind: tracing.EventSpill, At: telemetry.Now(), Node: -1, Tensor: name, Bytes: bytes, From: why.From, To: why.To, Reason: why.Reason,
	}
}

// noteOutputs records the outputs whose memory is slower than what the model asked for. Those that are memory of inputs were recorded
// where that was allocated. n is for the tasks.
//
// hot: one comparison for each task when no request is traced.
func (r *Runner) noteOutputs(in, out []tensor.Tensor, n Note) {
	if !n.traced() {
		return
	}
	for port := range out {
		t := &out[port]
		if !atDevice(t) || t.Buf.Spill() == nil || holds(in, t.Buf) {
			continue
		}
		n.Tensor = r.sig.Outputs[port].Name
		n.spilled(t.Buf, t.Buf.Place())
	}
}

// holds reports whether a tensor of the list is in b.
func holds(list []tensor.Tensor, b *tensor.Buffer) bool {
	for i := range list {
		if list[i].Present() && list[i].Buf == b {
			return true
		}
	}
	return false
}

// noteOwn records the bytes of spills in the stream of an instance that are no tensor of the batch: memory that the model works with.
// before is tensor.SpilledBytes at the start of the batch; whole is what Run returned. It ends the use of TaskTrace.Spilled.
func noteOwn(inst backends.Instance, before int64, list *scheduler.TaskList, whole bool) {
	own := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		if w.Traced == nil || w.Traced.Spilled == nil {
			continue
		}
		named := w.Traced.Spilled
		if w.Traced.Spilled = nil; !whole {
			continue
		}
		if own == 0 {
			own = tensor.SpilledBytes(backends.StreamOf(inst)) - before - named.Load()
		}
		if own <= 0 {
			continue
		}
		e := spillEvent("", own, &tensor.Spill{
			From: PlaceOf(inst), To: tensor.Place{Kind: tensor.Pinned}, Reason: "memory that the model works with: the pool is full, see --cuda-memory-pool-byte-size",
		})
		e.Node = w.Step
		w.Traced.Trace.Event(&e)
	}
}
