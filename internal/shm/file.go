package shm

import (
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/faults"
)

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
	if faults.At(faults.AttachShared) != nil {
		return nil, errOpen(key)
	}
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
