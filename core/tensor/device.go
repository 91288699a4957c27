package tensor

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Event is a position in a stream. It is done when all work that was put into the stream
// before it has executed. A nil Event counts as done. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. Stream.Record returns it.
//  2. Done, Wait and WaitOn may be called any number of times, in any order, also after the
//     stream is closed.
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

// Accelerator is a device: memory that the host cannot read, and streams of work on it. It is
// safe for concurrent use. Memory of its own Alloc may be used by every stream at once.
//
// Lifecycle:
//
//  1. A backend opens the device and registers it with Places.Add.
//  2. Models allocate, and start streams.
//  3. When every stream is closed and every buffer released, the backend calls Places.Remove
//     and closes the device.
type Accelerator interface {
	Allocator
	// NewStream starts a stream, which moves to the caller. name appears in error texts.
	NewStream(name string) (Stream, error)
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
