package shm

import (
	"errors"
	"io"
	"math"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// Window is the part of a region that one request uses. The region cannot be unregistered until the window is closed.
type Window struct {
	registry  *Registry
	region    *region
	off, size uint64 // off counts from the region's start
	device    deviceWindow
}

var windows pool.Of[Window]

// Open returns size bytes at offset in the named region. The caller must close it.
//
// hot: no allocation in steady state.
func (r *Registry) Open(name string, offset, size uint64) (*Window, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.regions[name]
	if g == nil {
		return nil, status.Errorf(status.NotFound, "Unable to find shared memory region: '%s'", name)
	}
	if err := g.check(offset, size); err != nil {
		return nil, err
	}
	g.windows++
	w := windows.Get()
	w.registry, w.region, w.off, w.size = r, g, offset, size
	return w, nil
}

// check returns an error when size bytes at offset are not inside the region.
func (g *region) check(offset, size uint64) error {
	switch {
	case offset >= g.Size:
		return status.Errorf(status.InvalidArg, "Invalid offset for shared memory region: '%s'", g.Name)
	case size > math.MaxUint64-offset:
		return status.Errorf(status.InvalidArg,
			"Integer overflow detected: byte_size (%d) + offset (%d) exceeds maximum value (%d) for region '%s'",
			size, offset, uint64(math.MaxUint64), g.Name)
	case size > g.Size-offset:
		return status.Errorf(status.InvalidArg, "Invalid offset + byte size for shared memory region: '%s'", g.Name)
	}
	return nil
}

// Size returns the window's length in bytes.
func (w *Window) Size() uint64 { return w.size }

// Read fills dst from the window's start. It fails when the window is smaller than dst, or when the client has
// truncated the memory behind it; dst is then undefined.
func (w *Window) Read(dst []byte) error { return w.access("read", dst, w.region.file.readAt) }

// Write copies src to the window's start. Read and Write are for System regions. It fails when the window is smaller than src, or when the client has
// truncated the memory behind it; Write never extends it.
func (w *Window) Write(src []byte) error { return w.access("write", src, w.region.file.writeAt) }

// ErrOutputSize returns Triton's error for an output of n bytes whose region has fewer.
func ErrOutputSize(output string, size, n uint64) error {
	return status.Errorf(status.Internal,
		"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results", output, size, n)
}

// WriteOutput is Write of the bytes of an output, with Triton's error for a window that is too small.
func (w *Window) WriteOutput(output string, b []byte) error {
	if n := uint64(len(b)); n > w.size {
		return ErrOutputSize(output, w.size, n)
	}
	return w.Write(b)
}

func (w *Window) access(verb string, p []byte, transfer func(p []byte, off int64) error) error {
	g := w.region
	if uint64(len(p)) > w.size {
		return status.Errorf(status.InvalidArg,
			"%d bytes at offset 0 of shared memory region '%s' are out of the %d bytes that the request names", len(p), g.Name, w.size)
	}
	err := transfer(p, int64(g.Offset+w.off)) // RegisterSystem has checked the range
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Errorf(status.InvalidArg,
			"unable to %s %d bytes of shared memory region '%s': the memory of key '%s' has become smaller than the registered offset %d and byte size %d",
			verb, len(p), g.Name, g.Key, g.Offset, g.Size)
	default:
		return status.Errorf(status.Internal, "unable to %s %d bytes of shared memory region '%s': %w", verb, len(p), g.Name, err)
	}
}

// Close releases the window, after the last use of its released Buffer. It must be the last call.
func (w *Window) Close() {
	r, g := w.registry, w.region
	w.device.settle()
	r.mu.Lock()
	g.windows--
	r.mu.Unlock()
	w.drop()
}

// drop returns the window to the pool.
func (w *Window) drop() {
	if w.device.drop() {
		w.registry, w.region, w.off, w.size = nil, nil, 0, 0
		windows.Put(w)
	}
}
