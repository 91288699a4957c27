// Package shm keeps the shared-memory regions that clients register. A request can name a part of a region instead
// of carrying the bytes of a tensor. For example, a client registers "input0" with the key "/input_data" once, and
// then sends only the region's name, an offset and a size.
//
// A region is a POSIX shared-memory object that the client created and may change, shorten or delete at any time.
// The server therefore never maps it: touching a page that the client has truncated would kill the process. Every
// access is a pread or pwrite on the region's descriptor, and fails with an error when the memory is gone.
//
// A region may also be memory of a GPU, which the client exports by an IPC handle. The device maps it for the time of its
// registration, and tensors in it are device tensors: see Window.Buffer.
package shm

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
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
	enabled   bool
	mu        sync.Mutex
	regions   map[string]*region   // guarded by mu
	devices   []tensor.Accelerator // guarded by mu
	noDevice  error                // why there are none; guarded by mu
	unmapping sync.WaitGroup       // releases of memory whose last use came after its region's end
}

// region is a registered region and the number of its open windows, which the registry's mu guards.
type region struct {
	Region
	file    *file          // of a System region
	memory  *tensor.Buffer // of a CUDA region
	windows int
	gone    bool // unregistered, guarded by the registry's mu
}

// end releases the memory. The registry's mu is held.
func (g *region) end() {
	g.gone = true
	if g.file != nil {
		g.file.release()
	}
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
	if err := r.admit(name); err != nil {
		return err
	}
	f, err := r.open(name, key, offset, size)
	if err != nil {
		return err
	}
	r.regions[name] = &region{Region: Region{Kind: System, Name: name, Key: key, Offset: offset, Size: size}, file: f}
	return nil
}

// admit fails when there is a region of this name, or no room for one. mu is held.
func (r *Registry) admit(name string) error {
	switch {
	case r.regions[name] != nil:
		return status.Errorf(status.AlreadyExists, "shared memory region '%s' already in manager", name)
	case len(r.regions) >= maxRegions:
		return status.Reasonf(status.LimitReached,
			"failed to register shared memory region '%s': %d regions are registered, which is the limit", name, maxRegions)
	}
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
		if g := other.file; g != nil && g.dev == f.dev && g.ino == f.ino { // another object may have the key since
			f.release()
			other.file.refs++
			return other.file, nil
		}
	}
	return f, nil
}

// Unregister removes the region of this kind and name, or all of the kind when the name is empty. A region with an
// open Window stays and is reported as an error; the other regions are removed nevertheless. An unknown name is not
// an error.
func (r *Registry) Unregister(kind Kind, name string) error {
	if err := r.Check(); err != nil {
		return err
	}
	used, ended := r.remove(kind, name)
	for _, g := range ended {
		g.memory.Release() // may wait for the device: requests must not wait for that
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

// remove removes regions that are not in use, and returns the names of those that are. The caller must release the memory of the
// removed CUDA regions, which it returns too.
func (r *Registry) remove(kind Kind, name string) (used []string, cuda []*region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.regions {
		switch {
		case g.Kind != kind || name != "" && g.Name != name:
		case g.windows > 0:
			used = append(used, g.Name)
		default:
			delete(r.regions, g.Name)
			g.end()
			if g.memory != nil {
				cuda = append(cuda, g)
			}
		}
	}
	return used, cuda
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
