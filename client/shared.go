package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Shared is POSIX shared memory of this process. A server on the same machine reads inputs from it, and writes outputs to it, once it
// is registered:
//
//	m, err := client.CreateShared("/inputs", 4096)
//	defer m.Close()
//	copy(m.Bytes, tensor.Data)
//	err = c.RegisterSystem(ctx, "inputs", m.Key, 0, uint64(len(m.Bytes)))
//	in := client.Tensor{Name: "X", DType: tensor.DType, Shape: tensor.Shape, Region: &client.Region{Name: "inputs", Size: uint64(len(tensor.Data))}}
type Shared struct {
	Key string // for RegisterSystem
	// Bytes is the memory. It must not be used after Close.
	Bytes []byte
	path  string
}

// sharedFolder is where Linux has the objects of POSIX shared memory.
const sharedFolder = "/dev/shm"

// CreateShared creates shared memory of size bytes, all of them 0. key is a name that begins with a slash; an object that exists already
// is an error.
func CreateShared(key string, size int) (m *Shared, err error) {
	name := strings.TrimPrefix(key, "/")
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == "..":
		return nil, fmt.Errorf("'%s' is no key of shared memory, expected a slash and a name without one", key)
	case size <= 0:
		return nil, fmt.Errorf("shared memory '%s' of %d bytes, expected at least 1", key, size)
	}
	path := filepath.Join(sharedFolder, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("shared memory '%s': %w", key, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fail := func(err error) (*Shared, error) {
		return nil, errors.Join(fmt.Errorf("shared memory '%s' of %d bytes: %w", key, size, err), os.Remove(path))
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil { //nolint:gosec // a descriptor is small
		return fail(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) //nolint:gosec // a descriptor is small
	if err != nil {
		return fail(err)
	}
	return &Shared{Key: "/" + name, Bytes: data, path: path}, nil
}

// Tensor returns an output of a response whose elements are in the shared memory: t with its Data. region is where the server has
// written it, with the offset of the registration added.
func (m *Shared) Tensor(t *Tensor, region Region) (Tensor, error) {
	end := region.Offset + region.Size
	if end < region.Offset || end > uint64(len(m.Bytes)) {
		return Tensor{}, fmt.Errorf("bytes %d to %d of shared memory '%s', which has %d", region.Offset, end, m.Key, len(m.Bytes))
	}
	out := *t
	out.Region, out.Data = nil, m.Bytes[region.Offset:end:end]
	return out, nil
}

// Close unmaps and removes the memory. It must be unregistered from servers first.
func (m *Shared) Close() error {
	if m.Bytes == nil {
		return nil
	}
	err := unix.Munmap(m.Bytes)
	m.Bytes = nil
	if removed := os.Remove(m.path); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
