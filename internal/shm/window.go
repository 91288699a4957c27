package shm

import (
	"errors"
	"io"
	"math"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// Window is the part of a region that one request uses. The region cannot be unregistered until the window is
// closed.
type Window struct {
	registry  *Registry
	region    *region
	off, size uint64 // off counts from the region's start
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
	*w = Window{registry: r, region: g, off: offset, size: size}
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

// Name returns the region's name.
func (w *Window) Name() string { return w.region.Name }

// Read fills dst from the window's start. It fails when the window is smaller than dst, or when the client has
// truncated the memory behind it; dst is then undefined.
func (w *Window) Read(dst []byte) error { return w.ReadAt(dst, 0) }

// ReadAt is Read from off bytes after the window's start.
func (w *Window) ReadAt(dst []byte, off uint64) error {
	if err := w.check(off, len(dst)); err != nil {
		return err
	}
	return w.explain("read", len(dst), w.region.file.readAt(dst, w.at(off)))
}

// Write copies src to the window's start. It fails when the window is smaller than src, or when the client has
// truncated the memory behind it; Write never extends it.
func (w *Window) Write(src []byte) error { return w.WriteAt(src, 0) }

// WriteAt is Write to off bytes after the window's start.
func (w *Window) WriteAt(src []byte, off uint64) error {
	if err := w.check(off, len(src)); err != nil {
		return err
	}
	return w.explain("write", len(src), w.region.file.writeAt(src, w.at(off)))
}

// at returns the offset in the object of off. It fits an int64: RegisterSystem has checked the range.
func (w *Window) at(off uint64) int64 { return int64(w.region.Offset + w.off + off) }

func (w *Window) check(off uint64, n int) error {
	if off > w.size || uint64(n) > w.size-off {
		return status.Errorf(status.InvalidArg,
			"%d bytes at offset %d of shared memory region '%s' are out of the %d bytes that the request names", n, off, w.region.Name, w.size)
	}
	return nil
}

// explain converts a failed access of n bytes into the error for the client.
func (w *Window) explain(verb string, n int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Errorf(status.InvalidArg,
			"unable to %s %d bytes of shared memory region '%s': the memory of key '%s' has become smaller than the registered offset %d and byte size %d",
			verb, n, w.region.Name, w.region.Key, w.region.Offset, w.region.Size)
	default:
		return status.Errorf(status.Internal, "unable to %s %d bytes of shared memory region '%s': %w", verb, n, w.region.Name, err)
	}
}

// Close releases the window. It must be the last call.
func (w *Window) Close() {
	r, g := w.registry, w.region
	*w = Window{}
	windows.Put(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	g.windows--
}
