package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// Stream is a stream of a device. Alloc, Copy, Fill, Launch and Record may be called by one goroutine at a time; its events may be used
// by any.
type Stream struct {
	device   *Device
	name     string
	priority int
	handle   C.cu_stream
	counted  bool   // among the device's open streams of callers
	launch   launch // of the caller's goroutine
	spilled  atomic.Int64

	mu      sync.Mutex
	started bool   // whether handle is set, guarded by mu
	ops     uint64 // operations so far, guarded by mu
	done    uint64 // of them, how many are known to be complete; guarded by mu
	marks   []mark // driver events behind operations after done, ascending; guarded by mu
	events  []event
	waited  *event  // of another stream, for which the newest wait in this one is; guarded by mu
	spans   []*span // that are not released, guarded by mu
	held    []hold  // host memory of copies after done, ascending; guarded by mu
	wake    chan struct{}
	ended   sync.WaitGroup
	closed  bool  // guarded by mu
	failed  error // of the operations after done, which a lost device never completes; guarded by mu
}

var _ tensor.Stream = (*Stream)(nil)

// mark is a driver event behind the first after operations.
type mark struct {
	after   uint64
	event   C.cu_event
	waiters int  // goroutines that wait for it: it must not be reused
	timed   bool // it belongs to a span
}

// hold is a reference on host memory until the first after operations are complete.
type hold struct {
	after uint64
	buf   *tensor.Buffer
}

// Place returns the device.
func (s *Stream) Place() tensor.Place { return s.device.Place() }

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.device }

// Handle returns the CUstream, for native runtimes. What they put into it must be followed by Used.
func (s *Stream) Handle() (unsafe.Pointer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	return unsafe.Pointer(s.handle), nil
}

// Used tells the stream that a native runtime has put work into it, so that the next Record is behind that.
func (s *Stream) Used() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops++
}

// Alloc returns n bytes for work that is put into the stream from now on.
func (s *Stream) Alloc(n int) (*tensor.Buffer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	b, err := s.device.alloc(n, s)
	if err != nil {
		return nil, err
	}
	return s.allocated(b), nil
}

// AllocNative is Alloc for memory that a native runtime keeps or works in; see Device.AllocNative.
func (s *Stream) AllocNative(n int) (*tensor.Buffer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	b, err := s.device.allocNative(n, s)
	if err != nil {
		return nil, err
	}
	return s.allocated(b), nil
}

// allocated orders the release of new memory: one before any use must come after the allocation.
func (s *Stream) allocated(b *tensor.Buffer) *tensor.Buffer {
	s.Used()
	b.UsedUntil(s.Record())
	return b
}

// SpilledBytes returns the bytes of the stream's allocations so far that are in pinned memory, see Device.SpillTo.
func (s *Stream) SpilledBytes() int64 { return s.spilled.Load() }

// Free releases memory of the stream's device.
func (s *Stream) Free(b *tensor.Buffer) { s.device.Free(b) }

// release puts the release of memory into the stream. It returns false when the stream is closed, or was never used.
func (s *Stream) release(p C.cu_ptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.started {
		return false
	}
	s.ops++
	_ = s.device.check(C.tutti_cuda_free_async(s.device.driver.table, s.device.ctx, p, s.handle), "cuMemFreeAsync") // a lost device says so elsewhere
	return true
}

// usable makes the driver's stream on the first call, and returns why the stream cannot be used.
func (s *Stream) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream '%s' is closed", s.Place(), s.name)
	}
	if s.started {
		return s.device.Lost()
	}
	if err := s.device.run(); err != nil {
		return err
	}
	return s.create()
}

// Copy implements tensor.Stream.
func (s *Stream) Copy(dst *tensor.Buffer, dstOff int, src *tensor.Buffer, srcOff, n int) error {
	if err := s.inside("copy to", dst, dstOff, n); err != nil {
		return err
	}
	if err := s.inside("copy from", src, srcOff, n); err != nil {
		return err
	}
	if dst.Place() != s.Place() && src.Place() != s.Place() {
		return fmt.Errorf("%s: a copy from %s to %s has no side at the device", s.Place(), src.Place(), dst.Place())
	}
	if err := s.usable(); err != nil || n == 0 {
		return err
	}
	if err := s.otherLost(dst, src); err != nil {
		return err
	}
	to, from := C.cu_ptr(uintptr(dst.Pointer())+uintptr(dstOff)), C.cu_ptr(uintptr(src.Pointer())+uintptr(srcOff))
	if err := s.device.check(C.tutti_cuda_copy(s.device.driver.table, s.device.ctx, to, from, C.size_t(n), s.handle), "cuMemcpyAsync"); err != nil {
		return err
	}
	s.put(dst, src)
	return nil
}

// otherLost returns why the other device of a copy is unusable, nil when it is usable or there is none: such a copy would make the
// stream's own device unusable too.
//
// hot: two comparisons unless the copy is between devices.
func (s *Stream) otherLost(dst, src *tensor.Buffer) error {
	for _, b := range [...]*tensor.Buffer{dst, src} {
		if at := b.Place(); at.Kind == tensor.Device && at != s.Place() {
			for _, v := range s.device.driver.started() {
				if v.Place() == at && v.Lost() != nil {
					return v.Lost()
				}
			}
		}
	}
	return nil
}

// Fill implements tensor.Stream. Elements have 1, 2, 4 or 8 bytes.
func (s *Stream) Fill(dst *tensor.Buffer, off, n int, elem []byte) error {
	if len(elem) == 0 {
		elem = []byte{0}
	}
	switch len(elem) {
	case 1, 2, 4, 8:
	default:
		return fmt.Errorf("%s: expected elements of 1, 2, 4 or 8 bytes to fill with, found %d", s.Place(), len(elem))
	}
	if n%len(elem) != 0 {
		return fmt.Errorf("%s: %d bytes are no multiple of an element of %d bytes", s.Place(), n, len(elem))
	}
	if dst.Place() != s.Place() {
		return fmt.Errorf("%s: cannot fill memory at %s", s.Place(), dst.Place())
	}
	if err := s.inside("fill of", dst, off, n); err != nil {
		return err
	}
	if err := s.usable(); err != nil || n == 0 {
		return err
	}
	to := C.cu_ptr(uintptr(dst.Pointer()) + uintptr(off))
	r := C.tutti_cuda_fill(s.device.driver.table, s.device.ctx, to, C.size_t(n), unsafe.Pointer(unsafe.SliceData(elem)), C.int(len(elem)), s.handle)
	if err := s.device.check(r, "cuMemsetAsync"); err != nil {
		return err
	}
	s.put(dst, nil)
	return nil
}

func (s *Stream) inside(what string, b *tensor.Buffer, off, n int) error {
	if off < 0 || n < 0 || off > b.Len()-n {
		return fmt.Errorf("%s: %s bytes %d to %d of a buffer of %d bytes", s.Place(), what, off, off+n, b.Len())
	}
	return nil
}

// put counts an operation on buffers. Memory of devices is released behind it; host memory is held until it is complete.
func (s *Stream) put(dst, src *tensor.Buffer) {
	s.mu.Lock()
	s.ops++
	e := s.eventLocked()
	held := len(s.held)
	for _, b := range [...]*tensor.Buffer{dst, src} {
		if b != nil && b.Place().Kind != tensor.Device {
			s.held = append(s.held, hold{s.ops, b.Retain()})
		}
	}
	if len(s.held) > held {
		s.wakeLocked()
	}
	s.mu.Unlock()
	for _, b := range [...]*tensor.Buffer{dst, src} {
		if b != nil && b.Place().Kind == tensor.Device {
			b.UsedUntil(e)
		}
	}
}

// keep takes over a reference on host memory until the work so far is complete.
func (s *Stream) keep(b *tensor.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // Close has waited for the work
		b.Release()
		return
	}
	s.ops++
	s.held = append(s.held, hold{s.ops, b})
	s.wakeLocked()
}

// wakeLocked has the goroutine that releases host memory look again. It starts it on the first call.
func (s *Stream) wakeLocked() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
		s.ended.Go(s.releaseHeld)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// releaseHeld releases host memory when the copies that use it are complete. It ends with the stream.
func (s *Stream) releaseHeld() {
	for range s.wake {
		s.mu.Lock()
		for len(s.held) > 0 {
			last := s.held[len(s.held)-1].after
			lost := s.waitLocked(last) != nil // it reads nothing any more
			n := 0
			for n < len(s.held) && (lost && s.held[n].after <= last || s.held[n].after <= s.done) {
				n++
			}
			free := append([]hold(nil), s.held[:n]...)
			s.held = append(s.held[:0], s.held[n:]...)
			s.mu.Unlock()
			for _, h := range free {
				h.buf.Release()
			}
			s.mu.Lock()
		}
		s.mu.Unlock()
	}
}

// Close waits for the stream's work and ends it. It may be called twice.
func (s *Stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	started := s.started
	s.mu.Unlock()
	v := s.device
	if s.counted {
		defer func() {
			v.mu.Lock()
			v.streams--
			v.mu.Unlock()
		}()
	}
	if !started {
		return nil
	}
	t := v.driver.table
	err := v.check(C.tutti_cuda_stream_sync(t, v.ctx, s.handle), "cuStreamSynchronize")
	s.mu.Lock()
	if err == nil {
		s.done = s.ops
	} else if s.failed == nil {
		s.failed = err
	}
	if s.wake != nil {
		close(s.wake)
	}
	for _, p := range s.spans {
		p.closeLocked()
	}
	s.mu.Unlock()
	s.ended.Wait()
	s.mu.Lock()
	held, marks := s.held, s.marks
	s.held = nil
	s.marks = slices.DeleteFunc(slices.Clone(marks), func(m mark) bool { return m.waiters == 0 }) // their waiters return them
	s.mu.Unlock()
	for _, h := range held {
		h.buf.Release()
	}
	for _, m := range marks {
		if m.waiters == 0 && !m.timed {
			v.putEvent(m.event)
		}
	}
	return errors.Join(err, v.check(C.tutti_cuda_stream_destroy(t, v.ctx, s.handle), "cuStreamDestroy"))
}
