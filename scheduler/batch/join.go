package batch

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// gatherAt joins the tensors of one input at the device of s: by a kernel if all are there and the device has kernels, and else by
// copies. Those of a ragged input are joined as rows of one element.
func (r *Runner) gatherAt(s tensor.Stream, list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	whole, ok := joined(list, port, r.sig.Inputs[port].Unbatched)
	if ok {
		err := r.s.Mover.ToDevice(&whole, s, r.note(port, telemetry.ForDevice, list.Head))
		if err != nil {
			whole.Release()
		}
		return whole, err
	}
	pad := r.s.Padding.input(port)
	shape := elementsShape(list, port)
	if !r.sig.Inputs[port].Unbatched {
		shape = joinedShape(list, port, int(list.Rows()), pad)
	}
	out, err := tensor.New(s, list.Head.In[port].DType, shape)
	if err != nil {
		return out, err
	}
	n := r.note(port, telemetry.ForDevice, list.Head)
	n.spilled(out.Buf, s.Place())
	if k := r.s.Mover.kernelsAt(s.Place()); k != nil && allAt(list, port, s.Place()) {
		if err := r.joinAt(s, k, &out, list, port, pad); err != nil {
			out.Release()
			return tensor.Tensor{}, err
		}
		return out, nil
	}
	off := 0
	for w := list.Head; w != nil; w = w.Next() {
		size, err := r.put(s, &out, off, w, port, pad)
		if err != nil {
			out.Release()
			return tensor.Tensor{}, err
		}
		off += size
	}
	return out, nil
}

// joined is joinElements for a ragged input, and join for others.
func joined(list *scheduler.TaskList, port int, ragged bool) (tensor.Tensor, bool) {
	if ragged {
		return joinElements(list, port)
	}
	return join(list, port)
}

// put copies a task's tensor into out at off and returns its size there. If the tensor is elsewhere and has other
// readers, it is copied to the device once and they share that copy.
func (r *Runner) put(s tensor.Stream, out *tensor.Tensor, off int, w *scheduler.Task, port int, pad *padInput) (int, error) {
	t, n := &w.In[port], r.note(port, telemetry.ForDevice, w)
	n.One = true
	from := t.Buf.Place()
	if from == s.Place() || t.Buf.Held() == 1 {
		if err := await(t.Buf, s); err != nil {
			return 0, err
		}
	} else if err := r.s.Mover.ToDevice(t, s, n); err != nil {
		return 0, err
	} else {
		from = s.Place()
	}
	if from == s.Place() {
		n.Reason = telemetry.ForRows
	} else if from.Kind == tensor.Device {
		n.Reason = telemetry.ForPeer
	}
	outer, seg, size := 1, t.Len, t.Len
	if pad != nil {
		outer, seg = segments(t, pad.dim)
		_, size = segments(out, pad.dim)
	}
	c := n.begin(s)
	for i := range outer {
		at := off + i*size
		if err := s.Copy(out.Buf, at, t.Buf, t.Off+i*seg, seg); err != nil {
			return 0, err
		}
		if pad == nil {
			break
		}
		if err := s.Fill(out.Buf, at+seg, size-seg, pad.elem); err != nil {
			return 0, err
		}
	}
	c.end(from, s.Place(), outer, outer*seg)
	return outer * size, nil
}

// kernelsAt returns the kernels of a device; nil if it has none, or if they cannot be loaded: copies do the same then, and it is not
// tried again.
func (m *Mover) kernelsAt(at tensor.Place) compute.Kernels {
	d, bit := m.places.Device(at), uint64(1)<<(uint(at.ID)%64)
	if d == nil || m.noKernels.Load()&bit != 0 || !compute.Can(d) {
		return nil
	}
	k, err := compute.Of(d)
	if err != nil {
		m.noKernels.Or(bit)
		return nil
	}
	return k
}

// allAt reports whether the tensors of all tasks are at a device.
func allAt(list *scheduler.TaskList, port int, at tensor.Place) bool {
	for w := list.Head; w != nil; w = w.Next() {
		if w.In[port].Buf.Place() != at {
			return false
		}
	}
	return true
}

// joinAt joins the rows of all tasks, which are at the device of s, by a kernel: one launch for several tasks, which also pads. It is
// no copy of the ledger.
//
// hot: no allocation in the steady state.
func (r *Runner) joinAt(s tensor.Stream, k compute.Kernels, out *tensor.Tensor, list *scheduler.TaskList, port int, pad *padInput) error {
	j := r.joins.Get()
	defer func() {
		clear(j.Parts)
		*j = compute.Join{Parts: j.Parts[:0]}
		r.joins.Put(j)
	}()
	j.Dst, j.Off = out.Buf, out.Off
	if pad != nil {
		_, j.To = segments(out, pad.dim)
		j.Elem = pad.elem
	} else if rows := int(out.Shape.Dim(0)); rows > 0 {
		j.To = out.Len / rows
	}
	for w := list.Head; w != nil; w = w.Next() {
		t := &w.In[port]
		if err := await(t.Buf, s); err != nil {
			return err
		}
		p := compute.Part{Buf: t.Buf, Off: t.Off, Len: j.To}
		if pad != nil {
			p.Rows, p.Len = segments(t, pad.dim)
		} else if j.To > 0 {
			p.Rows = t.Len / j.To
		}
		j.Parts = append(j.Parts, p)
	}
	err := k.Join(s, j)
	end := s.Record() // also after an error: some of several launches may be in the stream
	out.Buf.UsedUntil(end)
	for i := range j.Parts {
		j.Parts[i].Buf.UsedUntil(end)
	}
	return err
}
