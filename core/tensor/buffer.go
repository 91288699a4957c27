package tensor

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Kind is a kind of memory: ordinary, pinned for copies to devices, or a device's own.
type Kind uint8

// The kinds of memory.
const (
	Host Kind = iota
	Pinned
	Device
)

// Place is where memory lives, for example host or device:0. The zero Place is ordinary host memory.
type Place struct {
	Kind Kind
	ID   int16
}

// String returns the place as traces print it: host, pinned, device:0.
func (p Place) String() string {
	switch p.Kind {
	case Host:
		return "host"
	case Pinned:
		return "pinned"
	default:
		return fmt.Sprintf("device:%d", p.ID)
	}
}

// Owner owns the memory of buffers. Free is called once per buffer, when its last reference is released, from any
// goroutine; the buffer then moves back to the owner. Free must not block.
type Owner interface {
	Free(b *Buffer)
}

// Lender is an Owner of buffers over memory that is not its own and that others read, or that cannot be written. Builds with the tag
// invariants overwrite memory when its last reference is released, but not this.
type Lender interface {
	Owner
	Lends()
}

// Allocator allocates buffers at one place. It is safe for concurrent use.
//
// Lifecycle of a buffer:
//
//  1. Alloc returns it with one reference. The holder may write it.
//  2. Retain adds references. From the second one on nobody may write it.
//  3. Release gives up a reference. The last one calls Free, and the memory may be used again.
//
// For example, New(pool, FP32, Of(2, 3)) allocates 24 bytes, and the tensor's Release frees
// them. An allocator must outlive its buffers.
type Allocator interface {
	Owner
	// Alloc returns n bytes, not cleared, with one reference that moves to the caller. n may
	// be 0. It fails when there is no memory.
	Alloc(n int) (*Buffer, error)
	Place() Place
}

// Buffer is reference-counted memory outside the Go heap, aligned to 64 bytes. Each reference has one holder, which
// must call Release exactly once. A buffer is immutable once it has a second reference. Retain, Release and every
// reading method are safe for concurrent use by holders. See Allocator for its lifecycle.
type Buffer struct {
	refs   atomic.Int32
	place  Place
	class  int8 // the pool's size class; negative for a buffer that is one mapping
	empty  bool // a free buffer of the pool whose pages the system has, or may take
	n      int
	mapped int // bytes of the mapping, if the buffer is one
	ptr    unsafe.Pointer
	owner  Owner
	next   *Buffer // the pool's free list
	order  order   // of device work, and copies elsewhere
}

// NewBuffer wraps n bytes at ptr, memory that a native runtime owns, with one
// reference. owner.Free is called once, when the last reference is released.
func NewBuffer(owner Owner, place Place, ptr unsafe.Pointer, n int) *Buffer {
	b := &Buffer{}
	b.Reset(owner, place, ptr, n)
	return b
}

// Reset makes a released buffer wrap other memory, again with one reference, so that an owner
// can reuse buffers. It panics when a reference is left.
func (b *Buffer) Reset(owner Owner, place Place, ptr unsafe.Pointer, n int) {
	if b.refs.Load() != 0 {
		panic("tensor: reset of a buffer that is still held")
	}
	b.owner, b.place, b.ptr, b.n = owner, place, ptr, n
	b.refs.Store(1)
}

// Retain adds a reference, which moves to the caller. It panics when the last reference has been released.
func (b *Buffer) Retain() *Buffer {
	if b.refs.Add(1) <= 1 {
		b.refs.Add(-1) // a caller that recovers must not free the memory again
		panic("tensor: retain of a released buffer")
	}
	return b
}

// Release gives up one reference. The last one frees the memory.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		if b.order.copies != nil || b.order.ready != nil {
			b.order.end(b.place.Kind)
		}
		poison(b)
		b.owner.Free(b)
	case n < 0:
		b.refs.Add(1)
		panic("tensor: release of a released buffer")
	}
}

// Len returns the size in bytes.
func (b *Buffer) Len() int { return b.n }

// Place returns where the memory lives.
func (b *Buffer) Place() Place { return b.place }

// Pointer returns the address of the first byte, for native runtimes.
func (b *Buffer) Pointer() unsafe.Pointer { return b.ptr }

// Bytes returns the memory, borrowed: the caller must hold a reference while it uses the
// slice. It panics for device memory, which the host cannot read.
func (b *Buffer) Bytes() []byte {
	if b.place.Kind == Device {
		panic("tensor: host access to memory at " + b.place.String())
	}
	if b.n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.ptr), b.n)
}

// order holds the device work on a buffer that the host does not wait for.
type order struct {
	mu      sync.Mutex
	ready   Event      // set before the buffer is shared
	uses    []Event    // guarded by mu
	copying sync.Mutex // held while a copy is submitted, which notes a use of the buffer
	copies  *copied    // guarded by copying
}

// copied is a copy of part of a buffer at another place.
type copied struct {
	off, n int
	buf    *Buffer
	next   *copied
}

// SetReady sets the event after which b holds its content. Code that fills device memory, or host memory that a device
// copies to, must call it before it shares the buffer. Host memory must not be read or released before e is done.
func (b *Buffer) SetReady(e Event) { b.order.ready = e }

// Ready returns the event after which b holds its content; nil when it already does.
func (b *Buffer) Ready() Event { return b.order.ready }

// UsedUntil keeps b's memory from being reused before e is done. Code that puts work on b into
// a stream must call it before it releases the buffer.
func (b *Buffer) UsedUntil(e Event) {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	b.order.uses = append(slices.DeleteFunc(b.order.uses, func(u Event) bool { return follows(e, u) || u.Done() }), e)
}

// follows reports whether e is after everything that u is after. Events with a method Follows report it.
func follows(e, u Event) bool {
	f, ok := e.(interface{ Follows(o Event) bool })
	return ok && f.Follows(u)
}

// TakeOrder returns and clears the events that must be done before b's memory is reused. Only owners call it, in Free.
// The list is valid until the buffer is reset.
func (b *Buffer) TakeOrder() []Event {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	all := b.order.uses
	if b.order.ready != nil {
		all = append(all, b.order.ready)
	}
	b.order.uses, b.order.ready = all[:0], nil
	return all
}

// Held returns the number of references. It may be outdated unless the caller holds them all.
func (b *Buffer) Held() int { return int(b.refs.Load()) }

// CopyFor returns a copy at place of the n bytes at off; the reference moves to the caller. The first call makes it
// with copyTo, which must not block. While b has other holders it keeps the copy until its last release, so that
// concurrent and later calls share it. For example, two steps on device:0 that read one host tensor cause one copy.
func (b *Buffer) CopyFor(off, n int, place Place, copyTo func() (*Buffer, error)) (*Buffer, error) {
	b.order.copying.Lock()
	defer b.order.copying.Unlock()
	for c := b.order.copies; c != nil; c = c.next {
		if c.off == off && c.n == n && c.buf.place == place {
			return c.buf.Retain(), nil
		}
	}
	made, err := copyTo()
	if err == nil && b.refs.Load() > 1 {
		b.order.copies = &copied{off: off, n: n, buf: made.Retain(), next: b.order.copies}
	}
	return made, err
}

// end clears what belongs to the released content. The owner takes the events of device memory.
func (o *order) end(k Kind) {
	if k != Device {
		o.ready = nil // every reader has waited for it
	}
	c := o.copies
	o.copies = nil
	for ; c != nil; c = c.next {
		c.buf.Release()
	}
}

// Event is a position in a stream. It is done when all work that was put into the stream
// before it has executed. A nil Event counts as done. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. Stream.Record returns it.
//  2. Done, Wait and WaitOn may be called any number of times, in any order, also after the stream is closed.
//
// For example, a response waits for its copy: stream.Copy(host, 0, device, 0, n) and then stream.Record().Wait().
type Event interface {
	// Done reports whether the event is done. It never blocks.
	Done() bool
	// Wait blocks until the event is done. The error is that of the work before it.
	Wait() error
	// WaitOn makes work put into s from now on wait for the event. It does not block.
	WaitOn(s Stream) error
}

// Stream is a queue of device work, executed in order while the host goes on. Work of
// different streams is ordered only by events.
//
// A Stream is also an Allocator: memory that it returns may be used by work put into it from
// then on, and by work of streams that wait for an event recorded after the allocation.
//
// Lifecycle:
//
//  1. Accelerator.NewStream returns it, and the caller must call Close.
//  2. Alloc, Copy, Fill and Record may be called by one goroutine at a time.
//  3. Close waits for the work and ends the stream. Nothing may follow but Close.
type Stream interface {
	Allocator
	// Copy puts a copy of n bytes into the stream. At least one buffer must be at the stream's
	// device; the other may be on the host or at another device. The stream holds a reference
	// on both until the copy is done. The caller must call dst.SetReady.
	Copy(dst *Buffer, dstOff int, src *Buffer, srcOff, n int) error
	// Fill repeats elem over n bytes of dst; a nil elem writes zeros. len(elem) must divide n.
	// The stream holds a reference on dst until the fill is done.
	Fill(dst *Buffer, off, n int, elem []byte) error
	// Record returns an event after all work put into the stream so far.
	Record() Event
	// Close waits for the work of the stream and ends it. It may be called twice. The error is
	// that of the first work that failed.
	Close() error
}

// Timer is a Stream that measures how long its device takes for work.
type Timer interface {
	Stream
	// Span starts a measurement, which moves to the caller. It fails where the device cannot measure, and nothing else fails with it.
	Span() (Span, error)
}

// Laps is the number of durations of a Span.
const Laps = 3

// Span measures up to Laps consecutive phases of a stream's work, at the device. For example, marks before and after a batch of 8 ms
// that was put into the stream in 0.1 ms are 8 ms apart.
//
// Lifecycle:
//
//  1. Timer.Span returns it.
//  2. Mark is called at most Laps+1 times, by the goroutine that puts work into the stream.
//  3. Laps, Wait and Start may be called by one goroutine at a time, any number of times, also after the stream is closed.
//  4. Release is called once, and no call follows.
type Span interface {
	// Mark notes the position behind the work so far. Without an own position, a mark that has no work of this process before it since
	// the last mark is the same as that one, and costs nothing; own is for marks around the work of native runtimes and other processes.
	Mark(own bool) error
	// Laps returns the nanoseconds between the marks, 0 for those that are missing. ok is false while the device has not reached the
	// last mark. Without ask it may also be false when the device has, but nothing has asked the device since. It never blocks.
	Laps(ask bool) (ns [Laps]int64, ok bool, err error)
	// Wait blocks until the device has reached the last mark.
	Wait() error
	// Start returns when the device reached the first mark, on the host's clock: the true time is at most within earlier or later. The
	// caller must have waited. It may block for as long as the device takes to answer.
	Start() (at time.Time, within time.Duration, err error)
	Release()
}

// Accelerator is a device: memory that the host cannot read, and streams of work on it. It is
// safe for concurrent use. Memory of its own Alloc may be used by every stream at once.
//
// Lifecycle:
//
//  1. A backend opens the device and registers it with Places.Add.
//  2. Models allocate, and start streams.
//  3. When every stream is closed and every buffer released, the backend calls Places.Remove and closes the device.
type Accelerator interface {
	Allocator
	// NewStream starts a stream, which moves to the caller. name appears in error texts.
	NewStream(name string) (Stream, error)
}

// Importer is an Accelerator that maps memory of other processes.
type Importer interface {
	Accelerator
	// Import returns the device memory that an IPC handle names, with one reference that moves to the caller. The buffer ends with the
	// other process's allocation. Its last release, which may block, unmaps it after its last use. A handle of another length, or one
	// that names no memory of another running process, is InvalidArg; a lost or full device is Unavailable.
	Import(handle []byte) (*Buffer, error)
}

// Places returns the allocator of each place: the host's, the one of pinned memory, and those
// of the devices, which backends add and remove. It is safe for concurrent use.
type Places struct {
	host    Allocator
	mu      sync.Mutex // held while the list changes
	devices atomic.Pointer[[]Accelerator]
	pinned  atomic.Pointer[Allocator]
}

// NewPlaces returns a registry with host memory only.
func NewPlaces(host Allocator) *Places {
	p := &Places{host: host}
	p.devices.Store(&[]Accelerator{})
	return p
}

// Add registers a device. It fails when the place has one.
func (p *Places) Add(d Accelerator) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Device(d.Place()) != nil {
		return fmt.Errorf("there is a device at %s already", d.Place())
	}
	list := append(slices.Clone(*p.devices.Load()), d)
	slices.SortFunc(list, func(a, b Accelerator) int { return cmp.Compare(a.Place().ID, b.Place().ID) })
	p.devices.Store(&list)
	return nil
}

// Remove unregisters the device at a place. All its memory must have been released.
func (p *Places) Remove(at Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*p.devices.Load()), func(d Accelerator) bool { return d.Place() == at })
	p.devices.Store(&list)
}

// SetPinned sets the pool of pinned memory, through which copies to and from devices go; nil for none.
func (p *Places) SetPinned(pool Allocator) {
	if pool == nil {
		p.pinned.Store(nil)
		return
	}
	p.pinned.Store(&pool)
}

// PinnedUsage returns the size of the pool of pinned memory and its bytes in use; 0 when there
// is no pool, or one without a method Usage.
func (p *Places) PinnedUsage() (total, used int64) {
	if pool := p.pinned.Load(); pool != nil {
		if u, ok := (*pool).(interface{ Usage() (total, used int64) }); ok {
			return u.Usage()
		}
	}
	return 0, 0
}

// Device returns the device at a place, or nil when there is none.
//
// hot: a scan of a short list.
func (p *Places) Device(at Place) Accelerator {
	for _, d := range *p.devices.Load() {
		if d.Place() == at {
			return d
		}
	}
	return nil
}

// Lost returns why the device at a place cannot be used any more; nil while it can, and for the host. Devices that can be lost have
// a method Lost.
func (p *Places) Lost(at Place) error {
	if d, ok := p.Device(at).(interface{ Lost() error }); ok && at.Kind == Device {
		return d.Lost()
	}
	return nil
}

// Devices returns the places that are devices, in order.
func (p *Places) Devices() []Place {
	var list []Place
	for _, d := range *p.devices.Load() {
		list = append(list, d.Place())
	}
	return list
}

// Any reports whether there is any device.
//
// hot: one load.
func (p *Places) Any() bool { return len(*p.devices.Load()) > 0 }

// At returns the allocator of a place, or nil when there is no such device. Without pinned
// memory it returns the host's for that.
func (p *Places) At(at Place) Allocator {
	if at.Kind == Device {
		if d := p.Device(at); d != nil {
			return d
		}
		return nil
	}
	if pool := p.pinned.Load(); at.Kind == Pinned && pool != nil {
		return *pool
	}
	return p.host
}
