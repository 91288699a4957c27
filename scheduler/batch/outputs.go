package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// scatter sets the outputs of every task that did not fail to views of its rows, copied only to cut padding out.
func (r *Runner) scatter(b *backends.Batch, list *scheduler.TaskList) (err error) {
	for port := range b.Out {
		out, p := &b.Out[port], &r.sig.Outputs[port]
		switch {
		case !out.Present():
		case list.Len() == 1 && p.Unchecked:
			list.Head.Out[port] = out.Move()
		case p.ShapeTensor:
			i := 0
			for w := list.Head; w != nil; w = w.Next() {
				if b.Requests[i].Err == nil {
					w.Out[port] = out.Retain()
				}
				i++
			}
		case r.layout != nil && r.layout.source[port] >= 0:
			err = r.scatterElements(b, list, port, r.layout.source[port])
		case out.DType == tensor.Bytes:
			err = r.scatterBytes(b, list, port)
		default:
			err = r.scatterFixed(b, list, port)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) scatterFixed(b *backends.Batch, list *scheduler.TaskList, port int) error {
	out := &b.Out[port]
	row := 0
	if b.Rows > 0 {
		row = out.Len / b.Rows
	}
	unpad := r.s.Padding.output(port)
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		if q.Err != nil {
			continue
		}
		view := out.Retain()
		view.Off += q.First * row
		view.Len = q.Rows * row
		view.Shape.SetDim(0, int64(q.Rows))
		if unpad != nil && w.In[unpad.like].Present() {
			if err := r.cut(b, r.noteOut(port, w), &view, unpad.dim, w.In[unpad.like].Shape.Dim(unpad.likeDim)); err != nil {
				view.Release()
				return status.Errorf(status.Internal, "cannot unpad output '%s' of model '%s': %v", r.sig.Outputs[port].Name, r.sig.Model, err)
			}
		}
		w.Out[port] = view
	}
	return nil
}

// cut shortens t to n along dimension dim. A single run becomes a prefix; several are copied.
func (r *Runner) cut(b *backends.Batch, note Note, t *tensor.Tensor, dim int, n int64) error {
	if n >= t.Shape.Dim(dim) {
		return nil
	}
	outer, have := segments(t, dim)
	shape := t.Shape
	shape.SetDim(dim, n)
	keep := int(n*inner(&shape, dim)) * t.DType.Size()
	if outer == 1 {
		t.Shape, t.Len = shape, keep
		return nil
	}
	alloc, device := r.s.Alloc, atDevice(t)
	var s tensor.Stream
	if device {
		var err error
		if s, err = streamFor(b, t); err != nil {
			return err
		}
		alloc = s
	}
	short, err := tensor.New(alloc, t.DType, shape)
	if err != nil {
		return err
	}
	var c copying
	if device {
		note.spilled(short.Buf, s.Place())
		c = note.begin(s)
	}
	for i := range outer {
		if !device {
			copy(short.Bytes()[i*keep:], t.Bytes()[i*have:i*have+keep])
		} else if err := s.Copy(short.Buf, i*keep, t.Buf, t.Off+i*have, keep); err != nil {
			short.Release()
			return err
		}
	}
	if device {
		short.Buf.SetReady(s.Record())
		c.end(s.Place(), s.Place(), outer, outer*keep)
	}
	t.Release()
	*t = short
	return nil
}

// scatterBytes scatters BYTES elements, whose sizes differ.
func (r *Runner) scatterBytes(b *backends.Batch, list *scheduler.TaskList, port int) error {
	rest, i := b.Out[port], 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		shape := b.Out[port].Shape
		shape.SetDim(0, int64(q.Rows))
		view, ok := cutElements(&rest, shape)
		if !ok {
			return r.errElements(&b.Out[port], port)
		}
		if q.Err == nil {
			w.Out[port] = view.Retain()
		}
	}
	return nil
}

func (r *Runner) errElements(out *tensor.Tensor, port int) error {
	return status.Errorf(status.Internal, "output '%s' of model '%s' holds fewer elements than its shape %s", r.sig.Outputs[port].Name, r.sig.Model, out.Shape)
}

// scatterElements sets the output of each task to the next elements, as many as its scatteredShape has.
func (r *Runner) scatterElements(b *backends.Batch, list *scheduler.TaskList, port, source int) error {
	out := &b.Out[port]
	have, want := out.Shape.Elements(), int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		shape := r.scatteredShape(port, &w.In[source])
		n := shape.Elements()
		if n < 0 || n > have-want {
			want = have + 1
			break
		}
		want += n
	}
	if want != have {
		return status.Errorf(status.Internal, "output '%s' of model '%s' has %d elements, expected those of input '%s' of the batch",
			r.sig.Outputs[port].Name, r.sig.Model, have, r.sig.Inputs[source].Name)
	}
	rest, i := *out, 0
	for w := list.Head; w != nil; w = w.Next() {
		shape := r.scatteredShape(port, &w.In[source])
		view, ok := cutElements(&rest, shape)
		if !ok {
			return r.errElements(out, port)
		}
		if b.Requests[i].Err == nil {
			w.Out[port] = view.Retain()
		}
		i++
	}
	return nil
}

// cutElements removes the elements of a shape from the front of rest and returns them as a borrowed view.
func cutElements(rest *tensor.Tensor, shape tensor.Shape) (tensor.Tensor, bool) {
	n := int(shape.Elements()) * rest.DType.Size()
	if rest.DType == tensor.Bytes {
		left := rest.Bytes()
		for range shape.Elements() {
			var ok bool
			if _, left, ok = tensor.NextBytes(left); !ok {
				return tensor.Tensor{}, false
			}
		}
		n = rest.Len - len(left)
	}
	view := *rest
	view.Shape, view.Len = shape, n
	rest.Off += n
	rest.Len -= n
	return view, true
}

// scatteredShape returns the shape of one task's part of an output: its dims, with the input's extents in place of -1.
func (r *Runner) scatteredShape(port int, in *tensor.Tensor) tensor.Shape {
	shape := r.sig.Outputs[port].FullDims(r.sig.MaxBatch)
	for i, d := range shape.Dims() {
		switch {
		case d >= 0:
		case in.Present() && i < in.Shape.Rank():
			shape.SetDim(i, in.Shape.Dim(i))
		default:
			shape.SetDim(i, 0)
		}
	}
	return shape
}

// takeRequestOutputs moves per-request outputs to their tasks. err is the batch's.
func (r *Runner) takeRequestOutputs(b *backends.Batch, list *scheduler.TaskList, err error) {
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		if q.Out != nil && err == nil && q.Err == nil {
			if q.Err = r.checkRequestOutputs(b, w, q); q.Err == nil {
				moveOutputs(w.Out, q.Out)
			}
		}
		tensor.ReleaseAll(q.Out)
		q.Out = nil
	}
}

// checkRequestOutputs checks the per-request outputs of one task, and cuts padding out of them.
func (r *Runner) checkRequestOutputs(b *backends.Batch, w *scheduler.Task, q *backends.Request) error {
	if len(q.Out) != len(w.Out) {
		return status.Errorf(status.Internal, "model '%s' gives a request %d outputs, expected %d", r.sig.Model, len(q.Out), len(w.Out))
	}
	if err := r.checkOutputs(q.Out, q.Rows, true); err != nil {
		return err
	}
	for port := range q.Out {
		unpad, t := r.s.Padding.output(port), &q.Out[port]
		if unpad == nil || !t.Present() || t.DType == tensor.Bytes || !w.In[unpad.like].Present() || !r.sig.Outputs[port].Accepts(&t.Shape, r.sig.MaxBatch) {
			continue
		}
		if err := r.cut(b, r.noteOut(port, w), t, unpad.dim, w.In[unpad.like].Shape.Dim(unpad.likeDim)); err != nil {
			return err
		}
	}
	return nil
}

// moveOutputs moves per-request outputs to out.
func moveOutputs(out, own []tensor.Tensor) {
	for i := range min(len(out), len(own)) {
		out[i].Release()
		out[i] = own[i].Move()
	}
}

// responses passes the responses of a decoupled model on to the tasks of its batch.
type responses struct {
	runner *Runner
	tasks  []*scheduler.Task
	stream tensor.Stream // of the instance, nil on the host
}

// Respond checks one response as the outputs of an execution are checked, and passes it on. A response has as many rows
// as its request, apart from outputs that are Unchecked.
func (a *responses) Respond(i int, out []tensor.Tensor, params infer.Params, final bool) error {
	to, err := a.check(i, out)
	if err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	w := a.tasks[i]
	if w.Host != nil {
		return w.Host.Respond(to, w, out, params, final)
	}
	return to.Respond(w, out, params, final)
}

func (a *responses) check(i int, out []tensor.Tensor) (scheduler.Responder, error) {
	sig := a.runner.sig
	if i < 0 || i >= len(a.tasks) {
		return nil, status.Errorf(status.Internal, "model '%s' responds to request %d of a batch of %d", sig.Model, i, len(a.tasks))
	}
	record(a.stream, nil, out)
	if a.stream != nil && len(out) == len(sig.Outputs) {
		a.runner.noteOutputs(nil, out, Note{Tasks: a.tasks[i], One: true})
	}
	if len(out) != len(sig.Outputs) {
		return nil, status.Errorf(status.Internal, "model '%s' responds with %d outputs, expected %d", sig.Model, len(out), len(sig.Outputs))
	}
	if err := a.runner.checkOutputs(out, int(a.tasks[i].Rows), true); err != nil {
		return nil, err
	}
	to, ok := a.tasks[i].To.(scheduler.Responder)
	if !ok {
		return nil, status.Errorf(status.Unsupported, "model '%s' is decoupled, which is not supported here", sig.Model)
	}
	return to, nil
}

// RespondError implements backends.ErrorResponder.
func (a *responses) RespondError(i int, err error, final bool) {
	w := a.tasks[i]
	to, ok := w.To.(scheduler.Failer)
	switch {
	case !ok:
	case w.Host != nil:
		w.Host.Fail(to, w, err, final)
	default:
		to.Fail(w, err, final)
	}
}

// Detach implements backends.Responses.
func (a *responses) Detach() {
	if host := a.tasks[0].Host; host != nil {
		host.Detach()
	}
}

// emptyOutputs sets the outputs of a batch without rows that its model refused with err: shapes without
// rows, and 0 for variable dimensions. It returns err for a decoupled model or a disconnected client.
func (r *Runner) emptyOutputs(b *backends.Batch, err error) error {
	if r.sig.Decoupled || status.CodeOf(err) == status.Cancelled {
		return err
	}
	for port := range b.Out {
		p := &r.sig.Outputs[port]
		shape := p.FullDims(r.sig.MaxBatch)
		if p.Unbatched {
			shape = tensor.Of(0)
		}
		for i, d := range shape.Dims() {
			if d < 0 {
				shape.SetDim(i, 0)
			}
		}
		if p.ShapeTensor && shape.Elements() != 0 {
			return err // only the model knows its values
		}
		out, failed := tensor.NewBytes(r.s.Alloc, shape, 0)
		if failed != nil {
			return failed
		}
		out.DType = p.DType
		b.SetOutput(port, out)
	}
	return nil
}
