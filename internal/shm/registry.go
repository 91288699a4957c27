// Package shm keeps the shared-memory regions that clients register. A request can name a part of a region instead
// of carrying the bytes of a tensor. For example, a client registers "input0" with the key "/input_data" once, and
// then sends only the region's name, an offset and a size.
//
// A region is a POSIX shared-memory object that the client created and may change, shorten or delete at any time.
// The server therefore never maps it: touching a page that the client has truncated would kill the process. Every
// access is a pread or pwrite on the region's descriptor, and fails with an error when the memory is gone.
package shm

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// Kind is the kind of a region's memory.
type Kind uint8

// The kinds of memory a client can share.
const (
	// System is a POSIX shared-memory object.
	System Kind = iota
	// CUDA is device memory, shared by an IPC handle.
	CUDA
)

// String returns the kind as error texts spell it.
func (k Kind) String() string {
	if k == CUDA {
		return "cuda"
	}
	return "system"
}

// maxRegions bounds the regions, and with them the descriptors, that clients can hold.
const maxRegions = 4096

// Region is a registered region as its client described it. Sizes are in bytes.
type Region struct {
	Kind         Kind
	Name         string
	Key          string // Key names the POSIX object; empty for CUDA
	Offset, Size uint64
	Device       int64 // the CUDA device; 0 for System
}

// Registry holds the regions of all clients. Both kinds share one namespace. It is safe for concurrent use.
type Registry struct {
	enabled bool
	mu      sync.Mutex
	regions map[string]*region // guarded by mu
}

// region is a registered region and the number of its open windows, which the registry's mu guards.
type region struct {
	Region
	file    *file
	windows int
}

// NewRegistry returns an empty registry. When enabled is false, every method but Status fails.
func NewRegistry(enabled bool) *Registry {
	return &Registry{enabled: enabled, regions: map[string]*region{}}
}

var errDisabled error = &status.Error{
	Code: status.Unsupported,
	Msg:  "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
}

// Check fails when the registry is disabled.
func (r *Registry) Check() error {
	if !r.enabled {
		return errDisabled
	}
	return nil
}

// RegisterSystem registers size bytes at offset of the POSIX shared-memory object with this key. The name must be
// new, and the object must contain that range.
func (r *Registry) RegisterSystem(name, key string, offset, size uint64) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := checkKey(name, key); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.regions[name] != nil:
		return status.Errorf(status.AlreadyExists, "shared memory region '%s' already in manager", name)
	case len(r.regions) >= maxRegions:
		return status.Errorf(status.Unavailable,
			"failed to register shared memory region '%s': %d regions are registered, which is the limit", name, maxRegions)
	}
	f, err := r.open(name, key, offset, size)
	if err != nil {
		return err
	}
	r.regions[name] = &region{Region: Region{Kind: System, Name: name, Key: key, Offset: offset, Size: size}, file: f}
	return nil
}

// open returns the key's object with a reference for the caller. Regions of one object share its descriptor; mu is
// held.
func (r *Registry) open(name, key string, offset, size uint64) (*file, error) {
	f, err := openFile(name, key)
	if err != nil {
		return nil, err
	}
	if size == 0 || offset > f.size || size > f.size-offset {
		f.release()
		return nil, status.Errorf(status.InvalidArg, "failed to register shared memory region '%s': invalid args", name)
	}
	for _, other := range r.regions {
		if g := other.file; g.dev == f.dev && g.ino == f.ino { // another object may have the key since
			f.release()
			other.file.refs++
			return other.file, nil
		}
	}
	return f, nil
}

// RegisterCUDA always fails: this server cannot open device memory. The text begins as that of a Triton which
// cannot open the handle.
func (r *Registry) RegisterCUDA(name string, _ []byte, _ int64, _ uint64) error {
	if err := r.Check(); err != nil {
		return err
	}
	return status.Errorf(status.InvalidArg, "failed to register shared memory region '%s': invalid args, GPUs not supported", name)
}

// Unregister removes the region of this kind and name, or all of the kind when the name is empty. A region with an
// open Window stays and is reported as an error; the other regions are removed nevertheless. An unknown name is not
// an error.
func (r *Registry) Unregister(kind Kind, name string) error {
	if err := r.Check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var used []string
	for _, g := range r.regions {
		switch {
		case g.Kind != kind || name != "" && g.Name != name:
		case g.windows > 0:
			used = append(used, g.Name)
		default:
			delete(r.regions, g.Name)
			g.file.release()
		}
	}
	switch {
	case used == nil:
		return nil
	case name != "":
		return status.Errorf(status.Internal, "Cannot unregister shared memory region '%s', it is currently in use.", name)
	}
	slices.Sort(used)
	return status.Errorf(status.Internal, "Failed to unregister the following %s shared memory regions: %s ,", kind, strings.Join(used, " ,"))
}

// Status returns the region of this kind and name, or all of the kind, sorted by name, when the name is empty.
func (r *Registry) Status(kind Kind, name string) ([]Region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		all := []Region{}
		for _, g := range r.regions {
			if g.Kind == kind {
				all = append(all, g.Region)
			}
		}
		slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Name, b.Name) })
		return all, nil
	}
	switch g := r.regions[name]; {
	case g == nil:
		return nil, status.Errorf(status.NotFound, "Unable to find %s shared memory region: '%s'", kind, name)
	case g.Kind == kind:
		return []Region{g.Region}, nil
	case kind == CUDA:
		return nil, status.Errorf(status.NotFound, "The region named '%s' is registered as system shared memory, not CUDA shared memory", name)
	default:
		return nil, status.Errorf(status.NotFound, "The region named '%s' is registered as CUDA shared memory, not system shared memory", name)
	}
}

// Window is the part of a region that one request uses. The region cannot be unregistered until the window is closed.
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

// Read fills dst from the window's start. It fails when the window is smaller than dst, or when the client has
// truncated the memory behind it; dst is then undefined.
func (w *Window) Read(dst []byte) error { return w.access("read", dst, w.region.file.readAt) }

// Write copies src to the window's start. It fails when the window is smaller than src, or when the client has
// truncated the memory behind it; Write never extends it.
func (w *Window) Write(src []byte) error { return w.access("write", src, w.region.file.writeAt) }

// WriteOutput is Write of the bytes of an output, with Triton's error for a window that is too small.
func (w *Window) WriteOutput(output string, b []byte) error {
	if n := uint64(len(b)); n > w.size {
		return status.Errorf(status.Internal,
			"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
			output, w.size, n)
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

// Close releases the window. It must be the last call.
func (w *Window) Close() {
	r, g := w.registry, w.region
	*w = Window{}
	windows.Put(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	g.windows--
}

const (
	// folder is the directory of POSIX shared-memory objects on Linux.
	folder = "/dev/shm/"
	// reserved is the key prefix of the Python backend's own regions.
	reserved = "triton_python_backend_shm_region_"
)

// file is an open POSIX shared-memory object.
type file struct {
	fd       int
	dev, ino uint64
	size     uint64 // when it was opened
	refs     int    // guarded by the registry's mu
}

// checkKey refuses a key that does not name an object which a client may use. Leading slashes are ignored, as by
// shm_open.
func checkKey(name, key string) error {
	switch object := strings.TrimLeft(key, "/"); {
	case key == "":
		return errOpen(key)
	case object == "":
		return status.Errorf(status.InvalidArg, "cannot register shared memory region '%s' - invalid shm key '%s'", name, key)
	case strings.HasPrefix(object, reserved):
		return status.Errorf(status.InvalidArg,
			"cannot register shared memory region '%s' with key '%s' as the key contains the reserved prefix '%s'", name, key, reserved)
	case object == ".", object == "..", strings.ContainsAny(object, "/\x00"):
		return errOpen(key)
	}
	return nil
}

func errOpen(key string) error {
	return status.Errorf(status.Internal, "Unable to open shared memory region: '%s'", key)
}

// openFile opens the object of a checked key with one reference. It refuses everything but a regular file: a link,
// a device or a pipe has no memory to share.
func openFile(name, key string) (*file, error) {
	path := folder + strings.TrimLeft(key, "/")
	const flags = syscall.O_RDWR | syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	fd, err := syscall.Open(path, flags, 0)
	for errors.Is(err, syscall.EINTR) {
		fd, err = syscall.Open(path, flags, 0)
	}
	if err != nil {
		return nil, errOpen(key)
	}
	f := &file{fd: fd, refs: 1}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Size < 0 {
		f.release()
		return nil, status.Errorf(status.Internal, "Invalid shared memory region: '%s'", name)
	}
	f.dev, f.ino, f.size = st.Dev, st.Ino, uint64(st.Size)
	return f, nil
}

// release drops one reference. The last one closes the descriptor.
func (f *file) release() {
	if f.refs--; f.refs == 0 {
		_ = syscall.Close(f.fd) // nothing is buffered, so nothing can be lost
	}
}

// readAt fills p from the object, or fails with io.ErrUnexpectedEOF where the object ends early.
func (f *file) readAt(p []byte, off int64) error {
	return f.transfer(syscall.Pread, p, off, io.ErrUnexpectedEOF)
}

// writeAt writes p into the object. It fails with io.ErrUnexpectedEOF where that would extend the object.
func (f *file) writeAt(p []byte, off int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(f.fd, &st); err != nil {
		return err
	}
	if off > st.Size || int64(len(p)) > st.Size-off {
		return io.ErrUnexpectedEOF
	}
	return f.transfer(syscall.Pwrite, p, off, io.ErrShortWrite)
}

// transfer repeats a call until all of p is transferred. It fails with none when a call transfers nothing.
func (f *file) transfer(call func(fd int, p []byte, off int64) (int, error), p []byte, off int64, none error) error {
	for len(p) > 0 {
		n, err := call(f.fd, p, off)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case n <= 0:
			return none
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
