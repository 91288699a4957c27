package python

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/faults"
)

const (
	useInputs uint32 = iota
	useOutputs
)

const (
	pageBytes = 4096
	align     = 64
	// keptRegions is the most output regions that are kept for reuse.
	keptRegions = 4
	// maxRegions is the most output regions in use. Beyond it, outputs are copied out.
	maxRegions = 64
)

// newFile creates shared memory: a file that is sealed against shrinking, so that a process that maps it cannot lose pages.
func newFile(size int) (fd int, mem []byte, err error) {
	if err := faults.At(faults.WorkerMemory); err != nil {
		return noFile, nil, errMemory(size, err)
	}
	fd, err = unix.MemfdCreate("tutti-python", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return noFile, nil, errMemory(size, err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err == nil {
			mem, err = mapFile(fd, size)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return noFile, nil, errMemory(size, err)
	}
	return fd, mem, nil
}

func errMemory(size int, err error) error {
	return status.Reasonf(status.MemoryLimit, "no shared memory of %d bytes for a python worker: %w", size, err)
}

// mapFile maps size bytes of a file. It refuses a file that is smaller, or not sealed against shrinking.
func mapFile(fd, size int) ([]byte, error) {
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 || st.Size < int64(size) {
		return nil, status.Errorf(status.Internal, "unexpected file from a python worker, expected %d bytes that are sealed", size)
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// region is memory shared by the worker and the server. An output region is a tensor.Buffer while tensors are in it.
type region struct {
	buf tensor.Buffer
	id  uint32
	fd  int
	mem []byte
	of  *regions
}

// Free implements tensor.Owner: it makes the region available again.
func (r *region) Free(*tensor.Buffer) { r.of.put(r) }

func (r *region) close() {
	_ = unix.Munmap(r.mem)
	_ = unix.Close(r.fd)
	r.mem = nil
}

// grown maps a region that the worker has grown.
func (r *region) grown(size uint64) error {
	if size <= uint64(len(r.mem)) {
		return nil
	}
	if size > maxFile {
		return status.Errorf(status.Internal, "unexpected %d bytes of outputs from a python worker", size)
	}
	mem, err := mapFile(r.fd, int(size))
	if err != nil {
		return err
	}
	_ = unix.Munmap(r.mem)
	r.mem = mem
	return nil
}

// buffer returns the region as a buffer with one reference.
func (r *region) buffer() *tensor.Buffer {
	r.buf.Reset(r, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(r.mem)), len(r.mem))
	return &r.buf
}

// regions are the shared memory of one worker. Tensors in them may outlive the worker.
type regions struct {
	commands      *link
	first, growth int
	in            *region
	body          []byte
	nextID        uint32

	mu     sync.Mutex
	free   []*region // the last one was used last; guarded by mu
	out    int       // number of output regions, in use or free; guarded by mu
	drops  []uint32  // guarded by mu
	closed bool      // guarded by mu
}

// inputs returns the input region with at least n bytes.
func (g *regions) inputs(n int) (*region, error) {
	if g.in != nil && len(g.in.mem) >= n {
		return g.in, nil
	}
	g.dropInputs()
	g.mu.Lock()
	if g.in = g.spare(n); g.in != nil {
		g.out--
	}
	g.mu.Unlock()
	var err error
	if g.in == nil {
		g.in, err = g.add(useInputs, n)
	}
	return g.in, err
}

// spare returns the free region that was used last, or nil when it has less than n bytes: its pages are likely in the
// processor's cache. The caller holds mu.
func (g *regions) spare(n int) *region {
	last := len(g.free) - 1
	if last < 0 || len(g.free[last].mem) < n {
		return nil
	}
	r := g.free[last]
	g.free = g.free[:last]
	return r
}

// swap makes the input region the output region, and frees r, the one that it replaces.
func (g *regions) swap(r *region) *region {
	in := g.in
	g.in = nil
	g.put(r)
	g.mu.Lock()
	g.out++
	g.mu.Unlock()
	return in
}

// dropInputs drops the input region: the worker still uses it, or it is too small.
func (g *regions) dropInputs() {
	if g.in != nil {
		g.mu.Lock()
		g.drops = append(g.drops, g.in.id)
		g.mu.Unlock()
		g.in.close()
		g.in = nil
	}
}

// outputs returns a free region.
func (g *regions) outputs() (*region, error) {
	g.mu.Lock()
	r := g.spare(0)
	if r == nil {
		g.out++
	}
	g.mu.Unlock()
	if r != nil {
		return r, nil
	}
	return g.add(useOutputs, 0)
}

// crowded reports whether maxRegions are in use.
func (g *regions) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out-len(g.free) >= maxRegions
}

// put frees a region.
func (g *regions) put(r *region) {
	g.mu.Lock()
	keep := !g.closed && len(g.free) < keptRegions
	if keep {
		g.free = append(g.free, r)
	} else {
		g.out--
		if !g.closed {
			g.drops = append(g.drops, r.id)
		}
	}
	g.mu.Unlock()
	if !keep {
		r.close()
	}
}

// add creates a region of at least n bytes and sends it to the worker.
func (g *regions) add(use uint32, n int) (*region, error) {
	size := g.first
	if n > size {
		size = (n + g.growth - 1) / g.growth * g.growth
	}
	size = (size + pageBytes - 1) / pageBytes * pageBytes
	fd, mem, err := newFile(size)
	if err != nil {
		return nil, err
	}
	g.nextID++
	r := &region{id: g.nextID, fd: fd, mem: mem, of: g}
	b := binary.LittleEndian.AppendUint32(newBody(g.body), r.id)
	b = binary.LittleEndian.AppendUint32(b, use)
	g.body = binary.LittleEndian.AppendUint64(b, uint64(size))
	if err := g.commands.sendWith(kindRegion, 0, 0, len(g.body)-headBytes, g.body, fd); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// sendDrops sends the worker DROP for the regions that are no longer used.
func (g *regions) sendDrops() error {
	g.mu.Lock()
	drops := g.drops
	g.drops = nil
	g.mu.Unlock()
	for _, id := range drops {
		g.body = binary.LittleEndian.AppendUint32(newBody(g.body), id)
		if err := g.commands.send(kindDrop, 0, 0, g.body); err != nil {
			return err
		}
	}
	return nil
}

// close frees the regions. Those in use are freed when their tensors are released.
func (g *regions) close() {
	g.mu.Lock()
	g.closed = true
	free := g.free
	g.free = nil
	g.mu.Unlock()
	for _, r := range free {
		r.close()
	}
	if g.in != nil {
		g.in.close()
		g.in = nil
	}
}

// memory is the memory that the offsets of a response refer to.
type memory struct {
	mem   []byte
	alloc tensor.Allocator
	// keep returns a buffer over mem, borrowed, in which large tensors may stay. When keep is nil, all are copied.
	keep func() *tensor.Buffer
	// base is the offset of mem in that buffer.
	base int
	// gpu has the regions of tensors at GPUs. copied counts what the worker copied to them, see backends.Batch; it may be nil.
	gpu    *gpuRegions
	copied func(name string, from, to tensor.Place, bytes int)
}

// size returns the bytes of the memory that has the tensor of p.
func (m *memory) size(p *part) int {
	if p.gpu == 0 {
		return len(m.mem)
	}
	if r := m.gpu.find(p.gpu); r != nil && p.dtype != tensor.Bytes {
		return r.buf.Len()
	}
	return -1
}

// valid reports whether the tensor of p lies within its memory.
func (m *memory) valid(p *part) bool {
	n := m.size(p)
	return n >= 0 && p.valid(n)
}

// tensor returns the tensor of p, which the caller has checked with valid.
func (m *memory) tensor(p *part) (tensor.Tensor, error) {
	n := int(p.size)
	if p.gpu != 0 {
		r := m.gpu.find(p.gpu)
		if r == nil {
			return tensor.Tensor{}, status.Errorf(status.Internal, "the python worker names a GPU region that it does not have")
		}
		return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: r.buf.Retain(), Off: int(p.off), Len: n}, nil
	}
	if m.keep != nil && n >= largeBytes {
		return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: m.keep().Retain(), Off: m.base + int(p.off), Len: n}, nil
	}
	buf, err := m.alloc.Alloc(n)
	if err != nil {
		return tensor.Tensor{}, err
	}
	copy(buf.Bytes(), m.mem[p.off:p.off+p.size])
	return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: buf, Len: n}, nil
}

// mapping is the mapped body of a packet as a buffer.
type mapping []byte

// memory returns the memory of a packet's body from base on, and takes its mapping over. The caller must call release.
func (p *packet) memory(base int, alloc tensor.Allocator) (m memory, release func()) {
	m = memory{mem: p.body[base:], alloc: alloc, base: base}
	if !p.mapped {
		return m, func() {}
	}
	p.mapped = false
	buf := tensor.NewBuffer(mapping(p.body), tensor.Place{}, unsafe.Pointer(unsafe.SliceData(p.body)), len(p.body))
	m.keep = func() *tensor.Buffer { return buf }
	return m, buf.Release
}

// Free implements tensor.Owner.
func (m mapping) Free(*tensor.Buffer) { _ = unix.Munmap(m) }
