package batch

import (
	"errors"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// Mover copies tensors between places. A tensor stays where its producer put it until a reader needs it elsewhere, and
// that reader moves it. For example, an output on GPU 0 that only the next step on GPU 0 reads is never copied. It is
// safe for concurrent use. A nil Mover is for a process without devices.
type Mover struct {
	places      *tensor.Places
	mu          sync.Mutex
	hostStreams []*hostStream // guarded by mu
}

// outlet is the stream of the copies from a device to the host.
type hostStream struct {
	at     tensor.Place
	mu     sync.Mutex // held while copies are submitted
	stream tensor.Stream
}

// NewMover returns a mover between the given places.
func NewMover(places *tensor.Places) *Mover { return &Mover{places: places} }

// Idle reports whether there is no device.
//
// hot: one load.
func (m *Mover) Idle() bool { return m == nil || !m.places.Any() }

// ToHost starts to copy t to the host if it is at a device; Arrived waits. Other readers on the host share the copy.
func (m *Mover) ToHost(t *tensor.Tensor, n Note) error {
	if !t.Present() || t.Buf.Place().Kind != tensor.Device {
		return nil
	}
	l, err := m.hostStream(t.Buf.Place())
	if err != nil {
		return err
	}
	pool := m.places.At(tensor.Place{Kind: tensor.Pinned})
	l.mu.Lock()
	defer l.mu.Unlock()
	return move(t, l.stream, pool, n)
}

// Align starts to copy a device tensor that does not begin at a multiple of alignment to memory of the same device that does: kernels
// read several elements at once, and a wrong address would make the device unusable. Only clients' memory has such tensors.
func (m *Mover) Align(t *tensor.Tensor, n Note) error {
	if !t.Present() || t.Buf.Place().Kind != tensor.Device || uintptr(t.Pointer())%alignment == 0 {
		return nil
	}
	l, err := m.hostStream(t.Buf.Place())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return move(t, l.stream, l.stream, n)
}

// alignment is what runtimes expect of addresses in device memory; TensorRT asks for the most.
const alignment = 256

// Into starts to copy t, wherever it is, to the start of dst, device memory that is large enough, and returns the event after which dst
// holds it. It waits for a tensor that is on its way to the host.
func (m *Mover) Into(dst *tensor.Buffer, t *tensor.Tensor, n Note) (tensor.Event, error) {
	if err := WaitOnHost(t); err != nil {
		return nil, err
	}
	l, err := m.hostStream(dst.Place())
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := await(t.Buf, l.stream); err != nil {
		return nil, err
	}
	src := t.Retain()
	defer src.Release()
	c, copies := n.begin(l.stream), 1
	if overlap(dst, t) {
		copies++
		if err := separate(&src, l.stream); err != nil {
			return nil, err
		}
	}
	if err := l.stream.Copy(dst, 0, src.Buf, src.Off, src.Len); err != nil {
		return nil, err
	}
	c.end(t.Buf.Place(), dst.Place(), copies, copies*t.Len)
	return l.stream.Record(), nil
}

// overlap reports whether t has memory of dst. For example, a model returned its input, and the client reads and writes one region.
func overlap(dst *tensor.Buffer, t *tensor.Tensor) bool {
	to, from := uintptr(dst.Pointer()), uintptr(t.Pointer())
	return t.Buf.Place() == dst.Place() && from < to+uintptr(t.Len) && to < from+uintptr(t.Len)
}

// separate replaces t with a copy in memory of the stream.
func separate(t *tensor.Tensor, s tensor.Stream) error {
	b, err := s.Alloc(t.Len)
	if err != nil {
		return err
	}
	if err := s.Copy(b, 0, t.Buf, t.Off, t.Len); err != nil {
		b.Release()
		return err
	}
	t.Buf.Release()
	t.Buf, t.Off = b, 0
	return nil
}

// WaitOnHost blocks until the host may read t.
func WaitOnHost(t *tensor.Tensor) error {
	if e := pendingEvent(t); e != nil {
		return e.Wait()
	}
	return nil
}

// pendingEvent returns the event after which the host may read t, nil if it may now or t is at a device.
func pendingEvent(t *tensor.Tensor) tensor.Event {
	if !t.Present() || t.Buf.Place().Kind == tensor.Device {
		return nil
	}
	return t.Buf.Ready()
}

// Pending reports whether WaitOnHost would block.
func Pending(t *tensor.Tensor) bool {
	e := pendingEvent(t)
	return e != nil && !e.Done()
}

// ToDevice makes t usable for work that is submitted to s afterwards: it submits a copy to the device of s, or a wait if
// t is there already.
func (*Mover) ToDevice(t *tensor.Tensor, s tensor.Stream, n Note) error {
	if !t.Present() {
		return nil
	}
	if t.Buf.Place() == s.Place() {
		return await(t.Buf, s)
	}
	if t.Buf.Place().Kind == tensor.Device {
		n.Reason = telemetry.ForPeer
	}
	return move(t, s, s, n)
}

// move replaces t with a copy that is allocated from pool and made by s. Other holders of the tensor share the copy.
func move(t *tensor.Tensor, s tensor.Stream, pool tensor.Allocator, n Note) error {
	src := t.Buf
	to, err := src.CopyFor(t.Off, t.Len, pool.Place(), func() (*tensor.Buffer, error) {
		if err := await(src, s); err != nil {
			return nil, err
		}
		b, err := pool.Alloc(t.Len)
		if err != nil {
			return nil, err
		}
		c := n.begin(s)
		if err := s.Copy(b, 0, src, t.Off, t.Len); err != nil {
			b.Release()
			return nil, err
		}
		b.SetReady(s.Record())
		c.end(src.Place(), b.Place(), 1, t.Len)
		return b, nil
	})
	if err != nil {
		return err
	}
	if to.Place().Kind == tensor.Device {
		if err := await(to, s); err != nil {
			to.Release()
			return err
		}
	}
	t.Buf, t.Off = to, 0
	src.Release()
	return nil
}

// await makes s wait until src is ready. If src is on the host, where a copy from a device may be in flight, the caller
// blocks instead.
func await(src *tensor.Buffer, s tensor.Stream) error {
	e := src.Ready()
	if e == nil {
		return nil
	}
	if src.Place().Kind != tensor.Device {
		return e.Wait()
	}
	return e.WaitOn(s)
}

// outlet returns the outlet of a device. It is opened on first use.
func (m *Mover) hostStream(at tensor.Place) (*hostStream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.hostStreams {
		if l.at == at {
			return l, nil
		}
	}
	d := m.places.Device(at)
	if d == nil {
		return nil, status.Errorf(status.Internal, "there is no device at %s", at)
	}
	s, err := d.NewStream("copies to the host")
	if err != nil {
		return nil, err
	}
	l := &hostStream{at: at, stream: s}
	m.hostStreams = append(m.hostStreams, l)
	return l, nil
}

// Close closes the streams. No move may be in flight, and the devices must still be open.
func (m *Mover) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, l := range m.hostStreams {
		errs = append(errs, l.stream.Close())
	}
	m.hostStreams = nil
	return errors.Join(errs...)
}

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
	if r.layout == nil {
		return r.sig.Inputs[i].OnHost()
	}
	in := &r.layout.inputs[i]
	return in.computed == nil && r.sig.Inputs[in.from].OnHost()
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
	if r.layout == nil {
		return r.note(i, why, tasks)
	}
	n := r.note(r.layout.inputs[i].from, why, tasks)
	if c := r.layout.inputs[i].computed; c != nil {
		n.Tensor = c.Name
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
	if r.layout != nil {
		s = nil // such batches are made on the host
	}
	for port := range list.Head.In {
		t := &list.Head.In[port]
		var err error
		at := s
		if stay {
			at, err = streamOfRows(b, list, port)
		}
		switch {
		case !t.Present() || err != nil:
		case at != nil && !r.sig.Inputs[port].OnHost():
			b.In[port], err = r.gatherAt(at, list, port)
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

// gatherAt joins the tensors of one input at the device of s.
func (r *Runner) gatherAt(s tensor.Stream, list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	if whole, ok := join(list, port); ok {
		err := r.s.Mover.ToDevice(&whole, s, r.note(port, telemetry.ForDevice, list.Head))
		if err != nil {
			whole.Release()
		}
		return whole, err
	}
	pad := r.s.Padding.input(port)
	out, err := tensor.New(s, list.Head.In[port].DType, joinedShape(list, port, int(list.Rows()), pad))
	if err != nil {
		return out, err
	}
	off := 0
	for w := list.Head; w != nil; w = w.Next() {
		n, err := r.put(s, &out, off, w, port, pad)
		if err != nil {
			out.Release()
			return tensor.Tensor{}, err
		}
		off += n
	}
	return out, nil
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

// recordBatch records the end of a batch in its stream, for its outputs and those of its requests.
func recordBatch(b *backends.Batch) {
	if b.Stream == nil {
		return
	}
	record(b.Stream, b.In, b.Out)
	for i := range b.Requests {
		record(b.Stream, nil, b.Requests[i].Out)
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
