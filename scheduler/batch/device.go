package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// PlaceOf returns where an instance executes.
func PlaceOf(inst backends.Instance) tensor.Place {
	if s := backends.StreamOf(inst); s != nil {
		return s.Place()
	}
	return tensor.Place{}
}

// setPlace sets the stream of the batch and its allocators: those of the instance's device, or of the host.
//
// hot: one load while there is no device.
func (r *Runner) setPlace(b *backends.Batch, inst backends.Instance) {
	b.Stream, b.Allocator, b.HostAllocator, b.AnyPlace, b.Copied = nil, r.s.Alloc, r.s.Alloc, nil, nil
	if r.s.Mover.Idle() {
		return
	}
	b.Copied = r.copied
	if s := backends.StreamOf(inst); s != nil {
		b.Stream, b.Allocator = s, s
	} else {
		b.AnyPlace = backends.AnyPlaceOf(inst)
	}
}

// inputsStay reports whether the inputs of the batch stay where they are.
func inputsStay(b *backends.Batch) bool { return b.AnyPlace != nil && b.AnyPlace.InputsStay() }

// moveInputs moves the inputs of the batch to the place of the instance. It waits only for those on the host.
func (r *Runner) moveInputs(b *backends.Batch, tasks *scheduler.Task) error {
	s, in := b.Stream, b.In
	if r.s.Mover.Idle() {
		return nil
	}
	if inputsStay(b) {
		return r.waitHostInputs(nil, in)
	}
	for i := range in {
		t := &in[i]
		var err error
		if s != nil && !r.onHost(i) {
			err = r.s.Mover.ToDevice(t, s, r.noteBatch(i, telemetry.ForDevice, tasks))
		} else {
			err = r.s.Mover.ToHost(t, r.noteBatch(i, telemetry.ForHost, tasks))
		}
		if err != nil {
			return err
		}
	}
	for i := range in {
		if s != nil && !r.onHost(i) {
			continue
		}
		if err := WaitOnHost(&in[i]); err != nil {
			return err
		}
	}
	return nil
}

// onHost reports whether input i of a batch is on the host at an instance on a device.
func (r *Runner) onHost(i int) bool {
	port, ok := r.layout.sourceOf(i)
	return ok && r.sig.Inputs[port].OnHost()
}

// waitHostInputs waits for the inputs of a task that the host reads.
func (r *Runner) waitHostInputs(s tensor.Stream, in []tensor.Tensor) error {
	for i := range in {
		if s != nil && !r.sig.Inputs[i].OnHost() {
			continue
		}
		if err := WaitOnHost(&in[i]); err != nil {
			return err
		}
	}
	return nil
}

// note returns the Note of an input of the tasks.
func (r *Runner) note(port int, why telemetry.CopyReason, tasks *scheduler.Task) Note {
	return Note{Ledger: &r.s.Stats.Copies, Tensor: r.sig.Inputs[port].Name, Reason: why, Tasks: tasks}
}

// noteBatch returns the Note of an input of the batch, which may be a computed one.
func (r *Runner) noteBatch(i int, why telemetry.CopyReason, tasks *scheduler.Task) Note {
	port, ok := r.layout.sourceOf(i)
	n := r.note(port, why, tasks)
	if !ok {
		n.Tensor = r.layout.inputs[i].computed.Name
	}
	return n
}

// bring joins rows at the instance's device, and copies inputs that only the host can join to the host. Inputs that stay
// are joined at the device of the first one that is at a device.
func (r *Runner) bring(b *backends.Batch, list *scheduler.TaskList) error {
	if r.s.Mover.Idle() {
		return nil
	}
	s, stay := b.Stream, inputsStay(b) && r.layout == nil
	why := telemetry.ForHost
	if s != nil {
		why = telemetry.ForBatch
	}
	for i := range b.In {
		port, ok := r.layout.sourceOf(i)
		if !ok || !list.Head.In[port].Present() {
			continue
		}
		at, err := s, error(nil)
		if stay {
			at, err = streamOfRows(b, list, port)
		}
		switch {
		case err != nil:
		case at != nil && !r.sig.Inputs[port].OnHost():
			b.In[i], err = r.gatherAt(at, list, port)
		default:
			for w := list.Head; w != nil && err == nil; w = w.Next() {
				n := r.note(port, why, w)
				n.One = true
				err = r.s.Mover.ToHost(&w.In[port], n)
			}
		}
		if err != nil {
			return errGather(r.sig, port, err.Error())
		}
	}
	for w := list.Head; w != nil; w = w.Next() {
		if err := r.waitHostInputs(s, w.In); err != nil {
			return err
		}
	}
	return nil
}

// streamOfRows returns the instance's stream at the device of the first task whose input is at one, or nil.
func streamOfRows(b *backends.Batch, list *scheduler.TaskList, port int) (tensor.Stream, error) {
	for w := list.Head; w != nil; w = w.Next() {
		if atDevice(&w.In[port]) {
			return b.AnyPlace.StreamAt(w.In[port].Buf.Place())
		}
	}
	return nil, nil //nolint:nilnil // all rows are on the host
}

// streamFor returns the stream for work on an output of the batch that is at a device.
func streamFor(b *backends.Batch, t *tensor.Tensor) (tensor.Stream, error) {
	if b.Stream == nil && b.AnyPlace != nil {
		return b.AnyPlace.StreamAt(t.Buf.Place())
	}
	return b.Stream, nil
}

// recordBatch records the end of a batch in its stream, for its outputs and those of its requests, and what of them spilled in the
// traces of its tasks.
func (r *Runner) recordBatch(b *backends.Batch, tasks *scheduler.Task) {
	if b.Stream == nil {
		return
	}
	record(b.Stream, b.In, b.Out)
	r.noteOutputs(b.In, b.Out, Note{Tasks: tasks})
	w := tasks
	for i := range b.Requests {
		record(b.Stream, nil, b.Requests[i].Out)
		if out := b.Requests[i].Out; len(out) == len(r.sig.Outputs) {
			r.noteOutputs(b.In, out, Note{Tasks: w, One: true})
		}
		w = w.Next()
	}
}

// record records the end of a batch in stream s, nil on the host: its outputs are ready then, and its inputs unused.
func record(s tensor.Stream, in, out []tensor.Tensor) {
	if s == nil {
		return
	}
	end := s.Record()
	for i := range out {
		if atDevice(&out[i]) && out[i].Buf.Ready() == nil {
			out[i].Buf.SetReady(end)
		}
	}
	for i := range in {
		if atDevice(&in[i]) {
			in[i].Buf.UsedUntil(end)
		}
	}
}

func atDevice(t *tensor.Tensor) bool { return t.Present() && t.Buf.Place().Kind == tensor.Device }
