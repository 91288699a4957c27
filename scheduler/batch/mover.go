package batch

import (
	"errors"
	"sync"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// Mover copies tensors between places. A tensor stays where its producer put it until a reader needs
// it elsewhere, and that reader moves it. For example, an output on GPU 0 that only the next step on
// GPU 0 reads is never copied. It is safe for concurrent use. A nil Mover is for a process without
// devices.
type Mover struct {
	places  *tensor.Places
	mu      sync.Mutex
	outlets []*outlet // guarded by mu
}

// outlet is the stream of the copies from a device to the host.
type outlet struct {
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

// Note describes a move for counters and traces.
type Note struct {
	Ledger *telemetry.Ledger
	// Tensor is the name of the input or output.
	Tensor string
	Reason telemetry.MoveReason
	// Tasks are those that the copy is for, or with One only the first of them; Trace is that of
	// the request when there is no task. Traced ones record the copy.
	Tasks *scheduler.Task
	One   bool
	Trace *tracing.Trace
}

// ToHost starts to copy t to the host if it is at a device. Arrived waits for the copy. Other readers
// on the host share it.
func (m *Mover) ToHost(t *tensor.Tensor, n Note) error {
	if !t.Present() || t.Buf.Place().Kind != tensor.Device {
		return nil
	}
	l, err := m.outlet(t.Buf.Place())
	if err != nil {
		return err
	}
	pool := m.places.At(tensor.Place{Kind: tensor.Pinned})
	l.mu.Lock()
	defer l.mu.Unlock()
	return move(t, l.stream, pool, n)
}

// Arrived blocks until the host may read t.
func Arrived(t *tensor.Tensor) error {
	if !t.Present() || t.Buf.Place().Kind == tensor.Device {
		return nil
	}
	if e := t.Buf.Ready(); e != nil {
		return e.Wait()
	}
	return nil
}

// Late reports whether Arrived would block.
func Late(t *tensor.Tensor) bool {
	if !t.Present() || t.Buf.Place().Kind == tensor.Device {
		return false
	}
	e := t.Buf.Ready()
	return e != nil && !e.Done()
}

// ToDevice submits to s a copy of t to its device, or a wait for t if it is there. What is submitted
// to s afterwards may read t. It does not block.
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

// await submits to s a wait until b is ready.
func await(b *tensor.Buffer, s tensor.Stream) error {
	if e := b.Ready(); e != nil {
		return e.WaitOn(s)
	}
	return nil
}

// move replaces t with a copy that is allocated from pool and made by s. Other holders of the tensor
// share the copy.
func move(t *tensor.Tensor, s tensor.Stream, pool tensor.Allocator, n Note) error {
	src := t.Buf
	to, err := src.CopyFor(t.Off, t.Len, pool.Place(), func() (*tensor.Buffer, error) {
		if err := awaitAny(src, s); err != nil {
			return nil, err
		}
		b, err := pool.Alloc(t.Len)
		if err != nil {
			return nil, err
		}
		if err := s.Copy(b, 0, src, t.Off, t.Len); err != nil {
			b.Release()
			return nil, err
		}
		b.SetReady(s.Record())
		n.Ledger.Count(n.Tensor, src.Place(), b.Place(), n.Reason, t.Len)
		n.trace(src.Place(), b.Place(), t.Len)
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

// awaitAny submits to s a wait for src. For a copy to the host from another kind of device the host
// waits itself.
func awaitAny(src *tensor.Buffer, s tensor.Stream) error {
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
func (m *Mover) outlet(at tensor.Place) (*outlet, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.outlets {
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
	l := &outlet{at: at, stream: s}
	m.outlets = append(m.outlets, l)
	return l, nil
}

// Close closes the streams. No move may be in flight, and the devices must still be open.
func (m *Mover) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, l := range m.outlets {
		errs = append(errs, l.stream.Close())
	}
	m.outlets = nil
	return errors.Join(errs...)
}
