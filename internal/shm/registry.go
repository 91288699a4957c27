package shm

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/status"
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
	Kind Kind
	Name string
	// Key names the POSIX object; empty for CUDA.
	Key          string
	Offset, Size uint64
	// Device is the CUDA device; 0 for System.
	Device int64
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
	if err := r.checkNew(name); err != nil {
		return err
	}
	f, err := r.open(name, key, offset, size)
	if err != nil {
		return err
	}
	r.regions[name] = &region{
		Region: Region{Kind: System, Name: name, Key: key, Offset: offset, Size: size},
		file:   f,
	}
	return nil
}

// checkNew returns an error when no region of this name can be added; mu is held.
func (r *Registry) checkNew(name string) error {
	if r.regions[name] != nil {
		return status.Errorf(status.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	if len(r.regions) >= maxRegions {
		return status.Errorf(status.Unavailable,
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
		if other.file.same(f) {
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
	if name == "" {
		return r.unregisterAll(kind)
	}
	g := r.regions[name]
	if g == nil || g.Kind != kind || r.forget(g) {
		return nil
	}
	return status.Errorf(status.Internal, "Cannot unregister shared memory region '%s', it is currently in use.", name)
}

// unregisterAll removes all regions of a kind without open windows and returns an error that names the others; mu
// is held.
func (r *Registry) unregisterAll(kind Kind) error {
	var used []string
	for _, g := range r.regions {
		if g.Kind == kind && !r.forget(g) {
			used = append(used, g.Name)
		}
	}
	if used == nil {
		return nil
	}
	slices.Sort(used)
	return status.Errorf(status.Internal, "Failed to unregister the following %s shared memory regions: %s ,", kind, strings.Join(used, " ,"))
}

// forget removes g unless it has open windows, and reports whether it did; mu is held.
func (r *Registry) forget(g *region) bool {
	if g.windows > 0 {
		return false
	}
	delete(r.regions, g.Name)
	g.file.release()
	return true
}

// Status returns the region of this kind and name, or all of the kind, sorted by name, when the name is empty.
func (r *Registry) Status(kind Kind, name string) ([]Region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		return r.list(kind), nil
	}
	g := r.regions[name]
	if g == nil {
		return nil, status.Errorf(status.NotFound, "Unable to find %s shared memory region: '%s'", kind, name)
	}
	if g.Kind != kind {
		return nil, wrongKind(g)
	}
	return []Region{g.Region}, nil
}

// wrongKind returns the error for a region that exists with the other kind.
func wrongKind(g *region) error {
	is, not := "system", "CUDA"
	if g.Kind == CUDA {
		is, not = not, is
	}
	return status.Errorf(status.NotFound,
		"The region named '%s' is registered as %s shared memory, not %s shared memory", g.Name, is, not)
}

func (r *Registry) list(kind Kind) []Region {
	all := []Region{}
	for _, g := range r.regions {
		if g.Kind == kind {
			all = append(all, g.Region)
		}
	}
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
