package tensor

import (
	"fmt"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SharedMemory is a sparse file in memory that other processes can map: a position in it means the same bytes to each of them. It hands out
// ranges as a Mapper. Pages exist once they are written, so its size costs address space only. It is safe for concurrent use.
//
// For example, a server and the processes of its isolated models: Pool.Share moves the server's tensors there, and Offset is how the server
// names one of them to a process.
type SharedMemory struct {
	file *os.File // nil: the memory of another SharedMemory, or of another process
	mem  []byte

	mu   sync.Mutex
	next int           // the end of the ranges that were handed out; guarded by mu
	free map[int][]int // offsets of free ranges by their size; guarded by mu
}

var _ Mapper = (*SharedMemory)(nil)

// Sizes of a SharedMemory: the one that is tried first, and the least.
const (
	sharedMost  = 1 << 40
	sharedLeast = 1 << 30
)

// NewSharedMemory returns empty memory, as large as the limits of the process allow. The file is sealed: no process can shrink it, and so take
// pages away from another one.
func NewSharedMemory() (*SharedMemory, error) {
	for size := sharedMost; ; size /= 2 {
		m, err := newShared(size)
		if err == nil || size <= sharedLeast {
			return m, err
		}
	}
}

func newShared(size int) (*SharedMemory, error) {
	fd, err := unix.MemfdCreate("tutti-tensors", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot create shared memory: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot map %d bytes of shared memory: %w", size, err)
	}
	return &SharedMemory{file: os.NewFile(uintptr(fd), "tutti-tensors"), mem: mem, free: map[int][]int{}}, nil
}

// SharedRange returns the memory of a range that Map returned, here or in another process, to hand out parts of it.
func SharedRange(mem []byte) *SharedMemory { return &SharedMemory{mem: mem, free: map[int][]int{}} }

// File returns the file, borrowed. It is nil for a range.
func (m *SharedMemory) File() *os.File { return m.file }

// Len returns the size in bytes.
func (m *SharedMemory) Len() int { return len(m.mem) }

// Offset returns the position of an address. ok is false for an address elsewhere.
//
// hot: a comparison.
func (m *SharedMemory) Offset(p unsafe.Pointer) (off int, ok bool) {
	n := uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(m.mem)))
	return int(n), n < uintptr(len(m.mem)) //nolint:gosec // below a length
}

// Map returns a range of n bytes. Its size is rounded up to a power of two, which costs address space only.
func (m *SharedMemory) Map(n int) ([]byte, error) {
	size := rangeSize(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if list := m.free[size]; len(list) > 0 {
		off := list[len(list)-1]
		m.free[size] = list[:len(list)-1]
		return m.mem[off : off+n : off+n], nil
	}
	if size > len(m.mem)-m.next {
		return nil, fmt.Errorf("cannot map %d bytes: %d of the %d bytes of shared memory are mapped", n, m.next, len(m.mem))
	}
	off := m.next
	m.next += size
	return m.mem[off : off+n : off+n], nil
}

// Unmap takes back a range that Map returned, and gives its pages to the system.
func (m *SharedMemory) Unmap(mem []byte) {
	off, ok := m.Offset(unsafe.Pointer(unsafe.SliceData(mem)))
	if !ok {
		return
	}
	_ = unix.Madvise(m.mem[off:off+mappedLen(len(mem))], unix.MADV_REMOVE) // an error leaves the pages for the next use
	m.mu.Lock()
	defer m.mu.Unlock()
	size := rangeSize(len(mem))
	m.free[size] = append(m.free[size], off)
}

func rangeSize(n int) int { return 1 << bits.Len(uint(max(n, pageSize)-1)) } //nolint:gosec // positive
