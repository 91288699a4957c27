package python

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	useInputs uint32 = iota
	useOutputs
)

const (
	pageBytes = 4096
	align     = 64
	// keptRegions is how many regions for outputs wait for their next use.
	keptRegions = 4
	// maxRegions is how many outputs of executions may lie in memory of the worker at once; what comes then is copied out.
	maxRegions = 64
)

// newFile returns shared memory of its own: a file that can be made larger and never smaller, so that nobody who maps it
// can be left without its pages.
func newFile(size int) (fd int, mem []byte, err error) {
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
	return status.Errorf(status.Unavailable, "no shared memory of %d bytes for a python worker: %w", size, err)
}

// mapFile maps a file of at least that size which nobody can make smaller.
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

// region is memory that a worker and the server share. One for outputs is a buffer while tensors lie in it.
type region struct {
	buf  tensor.Buffer
	id   uint32
	fd   int
	mem  []byte
	of   *regions
	next *region
}

var _ tensor.Owner = (*region)(nil)

// Free puts a region whose tensors are gone back for its next use.
func (r *region) Free(*tensor.Buffer) { r.of.put(r) }

func (r *region) close() {
	_ = unix.Munmap(r.mem)
	_ = unix.Close(r.fd)
	r.mem = nil
}

// grown maps what the worker has added.
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

// regions are those of one worker. Tensors may outlive it.
type regions struct {
	calls         *link
	first, growth int
	in            *region
	body          []byte
	nextID        uint32

	mu      sync.Mutex
	free    *region  // guarded by mu
	waiting int      // guarded by mu
	out     int      // regions for outputs, waiting or not; guarded by mu
	drops   []uint32 // guarded by mu
	closed  bool     // guarded by mu
}

func newRegions(calls *link, first, growth int) *regions {
	return &regions{calls: calls, first: first, growth: growth}
}

// inputs returns the region of the inputs with room for n bytes.
func (g *regions) inputs(n int) (*region, error) {
	if g.in != nil && len(g.in.mem) >= n {
		return g.in, nil
	}
	g.leaveInputs()
	if g.in = g.spare(n); g.in != nil {
		return g.in, nil
	}
	r, err := g.add(useInputs, n)
	g.in = r
	return r, err
}

// spare takes the region that was used last out of those that wait, when it has room for n bytes: what a processor still
// has of it in its cache is worth more than another region would be.
func (g *regions) spare(n int) *region {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.free
	if r == nil || len(r.mem) < n {
		return nil
	}
	g.free, r.next = r.next, nil
	g.waiting--
	g.out--
	return r
}

// swap has the region of the inputs hold the outputs, in place of r, which nobody uses then.
func (g *regions) swap(r *region) *region {
	in := g.in
	g.in = nil
	g.put(r)
	g.mu.Lock()
	g.out++
	g.mu.Unlock()
	return in
}

// leaveInputs gives up the region of the inputs: the worker goes on using it, or it is too small.
func (g *regions) leaveInputs() {
	if g.in != nil {
		g.drop(g.in.id)
		g.in.close()
		g.in = nil
	}
}

// outputs returns a region that nobody uses.
func (g *regions) outputs() (*region, error) {
	g.mu.Lock()
	r := g.free
	if r != nil {
		g.free, r.next = r.next, nil
		g.waiting--
	}
	if r == nil {
		g.out++
	}
	g.mu.Unlock()
	if r != nil {
		return r, nil
	}
	return g.add(useOutputs, 0)
}

// crowded reports whether so many regions hold outputs that further ones had better be copied.
func (g *regions) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out-g.waiting >= maxRegions
}

// put takes a region back.
func (g *regions) put(r *region) {
	g.mu.Lock()
	keep := !g.closed && g.waiting < keptRegions
	if keep {
		r.next, g.free = g.free, r
		g.waiting++
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

func (g *regions) drop(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drops = append(g.drops, id)
}

// add makes a region of at least n bytes and tells the worker.
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
	if err := g.calls.sendFiles(kindRegion, 0, g.body, []int{fd}); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// settle tells the worker which regions it need not keep.
func (g *regions) settle() error {
	g.mu.Lock()
	drops := g.drops
	g.drops = nil
	g.mu.Unlock()
	for _, id := range drops {
		g.body = binary.LittleEndian.AppendUint32(newBody(g.body), id)
		if err := g.calls.send(kindDrop, 0, 0, g.body); err != nil {
			return err
		}
	}
	return nil
}

// close frees what nobody uses, and has the rest freed when it is released.
func (g *regions) close() {
	g.mu.Lock()
	g.closed = true
	free := g.free
	g.free = nil
	g.mu.Unlock()
	for free != nil {
		r := free
		free = r.next
		r.close()
	}
	if g.in != nil {
		g.in.close()
		g.in = nil
	}
}
