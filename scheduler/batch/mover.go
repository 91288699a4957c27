package batch

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Mover copies tensors between places. A tensor stays where its producer put it until a reader needs it elsewhere, and
// that reader moves it. For example, an output on GPU 0 that only the next step on GPU 0 reads is never copied. It is
// safe for concurrent use. A nil Mover is for a process without devices.
type Mover struct {
	places      *tensor.Places
	noKernels   atomic.Uint64 // a bit for each device whose kernels could not be loaded
	mu          sync.Mutex
	hostStreams []*hostStream // guarded by mu
}

// hostStream is the stream of the copies from a device to the host.
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
		n.spilled(b, pool.Place())
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
