package batch

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// Note describes a copy for counters and traces.
type Note struct {
	Ledger *telemetry.Ledger
	// Tensor is the name of the input or output.
	Tensor string
	Reason telemetry.CopyReason
	// Tasks are those that the copy is for, or with One only the first of them; Trace is that of
	// the request when there is no task. Traced ones record the copy.
	Tasks *scheduler.Task
	One   bool
	Trace *tracing.Trace
}

// noteOut returns the Note of rows that are cut out of an output for a task.
func (r *Runner) noteOut(port int, w *scheduler.Task) Note {
	return Note{Ledger: &r.s.Stats.Copies, Tensor: r.sig.Outputs[port].Name, Reason: telemetry.ForRows, Tasks: w, One: true}
}

// copying is a copy that is being put into a stream.
type copying struct {
	n     *Note
	s     tensor.Stream
	start tensor.Event // nil when no trace records the copy
}

// begin precedes the copies that n describes, which the caller puts into s.
//
// hot: no allocation when the request is not traced.
func (n *Note) begin(s tensor.Stream) copying {
	c := copying{n: n, s: s}
	if n.Reason != telemetry.ForCapture && n.traced() {
		c.start = s.Record()
	}
	return c
}

// traced reports whether a trace records the copy.
func (n *Note) traced() bool {
	if n.Trace != nil {
		return true
	}
	for w := n.Tasks; w != nil; w = w.Next() {
		if w.Trace() != nil {
			return true
		}
		if n.One {
			break
		}
	}
	return false
}

// end counts the copies since begin, and records them in the traces of the tasks that they are made for. The duration is
// known once the device has made them: the end of a trace waits for it, the caller does not.
//
// hot: no allocation when the request is not traced.
func (c copying) end(from, to tensor.Place, copies, bytes int) {
	n := c.n
	if bytes == 0 { // a device does not copy tensors without elements
		return
	}
	n.Ledger.Count(n.Tensor, from, to, n.Reason, copies, bytes)
	if c.start == nil && n.Trace == nil {
		return
	}
	e := tracing.Event{Kind: tracing.EventCopy, Tensor: n.Tensor, From: from, To: to, Bytes: int64(bytes), Reason: n.Reason.String()}
	e.At, e.Node = telemetry.Now(), -1
	if c.start == nil { // what a capture costs is no time of the request
		n.Trace.Event(&e)
		return
	}
	go recordCopy(c.start, c.s.Record(), &e, n.copied())
}

// copied is a trace that waits for a copy, and the step that the copy is for; -1 for the request.
type copied struct {
	trace *tracing.Trace
	node  int32
}

// copied returns the traces that record the copy.
func (n *Note) copied() (list []copied) {
	if n.Trace != nil {
		list = append(list, copied{n.Trace.Expect(), -1})
	}
	for w := n.Tasks; w != nil; w = w.Next() {
		if t := w.Trace(); t != nil {
			list = append(list, copied{t.Expect(), w.Step})
		}
		if n.One {
			break
		}
	}
	return list
}

// recordCopy records the event e in traces once the copy between start and end is made. A lost device never makes it:
// the event then has no duration.
func recordCopy(start, end tensor.Event, e *tracing.Event, list []copied) {
	if start.Wait() == nil {
		e.At = max(e.At, telemetry.Now())
		if end.Wait() == nil {
			e.Duration = max(telemetry.Now()-e.At, 1)
		}
	}
	for _, h := range list {
		e.Node = h.node
		h.trace.Late(e)
	}
}
