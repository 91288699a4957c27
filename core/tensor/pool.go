package tensor

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/faults"
)

const (
	minClassBits = 6  // 64 bytes, the alignment promised
	maxClassBits = 20 // 1 MiB; larger buffers get a separate mapping
	numClasses   = maxClassBits - minClassBits + 1
	slabSize     = 1 << 20
	keepResident = 64 << 20          // bytes of large mappings kept for reuse as they are, those that were freed last
	keepMapped   = 256 << 20         // and in all: the system may take the pages of the others
	hugeFrom     = 4 << 20           // bytes from which a mapping asks for huge pages
	admitFrom    = 16 << 20          // bytes from which a mapping asks whether the memory has room for it
	pageClass    = 12 - minClassBits // the first size class whose buffers are whole pages
)

// Pool allocates host memory outside the Go heap. Sizes up to 1 MiB come from power-of-two classes carved out of 1 MiB
// slabs, which stay mapped; larger ones are separate mappings. Up to 256 MiB of them are kept for reuse, because
// mapping and faulting pages costs more than most uses of them; beyond the 64 MiB that were freed last the system may take their pages back
// when it needs memory. A mapping is used again for up to a third fewer bytes, so that tensors of many sizes, such as those of images, share
// them. ReleaseIdle returns what was not used for a while: the larger mappings, and the pages of free buffers of slabs.
type Pool struct {
	place   Place
	mapper  Mapper // nil: mappings of the process
	inUse   atomic.Int64
	mapped  atomic.Int64
	shared  atomic.Pointer[SharedMemory] // of Share
	sharing sync.Mutex
	classes [numClasses]freeList
	large   mappings
	slabs   slabs // of a mapper

	room      func(n int64) error // of Admit; nil for none
	admitting sync.Mutex          // held from room to the mapping, so that what room has admitted counts for the next
}

// slabs are the slabs that a mapper has mapped.
type slabs struct {
	mu   sync.Mutex
	list [][]byte // guarded by mu
}

var _ Allocator = (*Pool)(nil)

// freeList is one size class.
type freeList struct {
	mu    sync.Mutex
	free  *Buffer // the one that was freed last is first; guarded by mu
	n     int     // the length of free, guarded by mu
	idle  int     // the last ones of free, which nothing has used since the last ReleaseIdle; guarded by mu
	_     [32]byte
	carve []byte // the rest of the current slab, guarded by mu
}

// mappings keeps large buffers for reuse.
type mappings struct {
	mu       sync.Mutex
	free     []*Buffer // oldest first, guarded by mu
	kept     int       // bytes in free, guarded by mu
	resident int       // those of them whose pages are not offered to the system, the last ones of free; guarded by mu
	idle     int       // the first ones of free, which were there at the last ReleaseIdle; guarded by mu
}

// Mapper maps the memory of a Pool that is not ordinary memory. It is safe for concurrent use.
type Mapper interface {
	// Map returns n bytes, aligned to 4096. n is a multiple of 4096. It fails when there is no memory.
	Map(n int) ([]byte, error)
	// Unmap takes back memory that Map returned.
	Unmap(m []byte)
}

// NewPoolOf returns an empty pool at a place whose memory m maps. For example, memory that a device's driver has pinned.
func NewPoolOf(place Place, m Mapper) *Pool { return &Pool{place: place, mapper: m} }

// NewPool returns an empty pool of host memory.
func NewPool() *Pool { return &Pool{} }

// NewPinnedPool returns an empty pool whose place is pinned memory. The memory is ordinary: only
// a device's driver can pin it, and a backend of real devices has its own pool.
func NewPinnedPool() *Pool { return &Pool{place: Place{Kind: Pinned}} }

// Share moves the pool into memory that other processes can map: from now on it maps what it needs there. Buffers in use stay where they are,
// those that are kept for reuse are dropped. Later calls return the same memory, which exists as long as the process.
func (p *Pool) Share() (*SharedMemory, error) {
	p.sharing.Lock()
	defer p.sharing.Unlock()
	if m := p.shared.Load(); m != nil || p.mapper != nil {
		return m, nil
	}
	m, err := NewSharedMemory()
	if err != nil {
		return nil, err
	}
	p.shareIn(m)
	return m, nil
}

// Admit has the pool call room before it maps a buffer of n bytes, 16 MiB at least, and fail with the error that room returns. A small request
// can need a large tensor, for example the sums of all pairs of two lists, and the kernel would end a process without memory for it. Admit
// must be called before Alloc. Calls of room follow each other.
func (p *Pool) Admit(room func(n int64) error) { p.room = room }

// ShareIn is Share with memory that exists already.
func (p *Pool) ShareIn(m *SharedMemory) {
	p.sharing.Lock()
	defer p.sharing.Unlock()
	p.shareIn(m)
}

func (p *Pool) shareIn(m *SharedMemory) {
	p.shared.Store(m)
	p.Trim()
	for i := range p.classes { // what is left of the slabs stays mapped, as all slabs do
		l := &p.classes[i]
		l.mu.Lock()
		l.free, l.carve, l.n, l.idle = nil, nil, 0, 0
		l.mu.Unlock()
	}
}

// Place returns the host, or pinned memory.
func (p *Pool) Place() Place { return p.place }

// InUse returns the bytes handed out and not yet freed, rounded to size classes.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// Usage returns the bytes that the pool has mapped, and those of them that are in use.
func (p *Pool) Usage() (total, used int64) { return p.mapped.Load(), p.inUse.Load() }

// Alloc returns n uncleared bytes with one reference.
//
// hot: at most one short lock, no allocation in the steady state.
func (p *Pool) Alloc(n int) (*Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", n)
	}
	if n > 1<<maxClassBits {
		return p.allocLarge(n)
	}
	if err := faults.At(faults.PoolAlloc); err != nil {
		return nil, err
	}
	c := classOf(n)
	b, err := p.take(c)
	if err != nil {
		return nil, err
	}
	b.owner, b.place, b.n = p, p.place, n
	b.refs.Store(1)
	p.inUse.Add(1 << (c + minClassBits))
	return b, nil
}

// Free takes a buffer of this pool back.
func (p *Pool) Free(b *Buffer) {
	if b.class < 0 {
		p.inUse.Add(-int64(b.mapped))
		p.mapped.Add(-int64(p.large.put(b, p)))
		return
	}
	p.inUse.Add(-(1 << (int(b.class) + minClassBits)))
	l := &p.classes[b.class]
	l.mu.Lock()
	b.next, l.free = l.free, b
	l.n++
	l.mu.Unlock()
}

func classOf(n int) int {
	if n <= 1<<minClassBits {
		return 0
	}
	return bits.Len(uint(n-1)) - minClassBits
}

// take returns memory of a size class.
func (p *Pool) take(class int) (*Buffer, error) {
	l := &p.classes[class]
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.free; b != nil {
		l.free, b.next, b.empty = b.next, nil, false
		l.n--
		l.idle = min(l.idle, l.n)
		return b, nil
	}
	size := 1 << (class + minClassBits)
	if len(l.carve) < size {
		slab, err := p.mapMemory(slabSize)
		if err != nil {
			return nil, err
		}
		p.keepSlab(slab)
		l.carve = slab
	}
	b := &Buffer{class: int8(class), ptr: unsafe.Pointer(unsafe.SliceData(l.carve))}
	l.carve = l.carve[size:]
	return b, nil
}

func (p *Pool) keepSlab(slab []byte) {
	if p.mapper == nil {
		return // it stays mapped
	}
	p.slabs.mu.Lock()
	p.slabs.list = append(p.slabs.list, slab)
	p.slabs.mu.Unlock()
}

// mapMemory maps n bytes and counts them.
func (p *Pool) mapMemory(n int) (m []byte, err error) {
	switch shared := p.shared.Load(); {
	case p.mapper != nil:
		m, err = p.mapper.Map(n)
	case shared != nil:
		m, err = shared.Map(n)
	default:
		m, err = mmap(n)
	}
	if err == nil {
		p.mapped.Add(int64(n))
	}
	return m, err
}

// source returns the mapper of a large buffer's memory, nil for a mapping of the process.
func (p *Pool) source(b *Buffer) Mapper {
	if shared := p.shared.Load(); shared != nil {
		if _, ok := shared.Offset(b.ptr); ok {
			return shared
		}
	}
	return p.mapper
}

const pageSize = 4096

func mappedLen(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

func (p *Pool) allocLarge(n int) (*Buffer, error) {
	if err := faults.At(faults.PoolAlloc); err != nil {
		return nil, err
	}
	size := mappedLen(n)
	b := p.large.take(size)
	if b == nil {
		m, err := p.mapLarge(size)
		if err != nil {
			return nil, err
		}
		b = &Buffer{class: -1, mapped: size, ptr: unsafe.Pointer(unsafe.SliceData(m))}
	}
	b.owner, b.place, b.n = p, p.place, n
	b.refs.Store(1)
	p.inUse.Add(int64(b.mapped))
	return b, nil
}

func (p *Pool) mapLarge(size int) ([]byte, error) {
	if p.room != nil && size >= admitFrom {
		p.admitting.Lock()
		defer p.admitting.Unlock()
		if err := p.room(int64(size)); err != nil {
			return nil, err
		}
	}
	return p.mapMemory(size)
}

// take returns the newest kept mapping of at least size bytes and at most half as many more, or nil.
func (m *mappings) take(size int) *Buffer {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, b := range slices.Backward(m.free) {
		if b.mapped >= size && b.mapped-size <= size/2 {
			m.free = slices.Delete(m.free, i, i+1)
			m.drop(b)
			if i < m.idle {
				m.idle--
			}
			return b
		}
	}
	return nil
}

// drop no longer counts b, which leaves free. The caller holds mu.
func (m *mappings) drop(b *Buffer) {
	m.kept -= b.mapped
	if !b.empty {
		m.resident -= b.mapped
	}
	b.empty = false
}

// put keeps b, and unmaps the oldest mappings beyond the bound, of which it returns the
// bytes. One that alone is beyond it goes at once, without pushing the others out.
func (m *mappings) put(b *Buffer, of *Pool) (unmapped int) {
	if b.mapped > keepMapped {
		unmap(b, of.source(b))
		return b.mapped
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, b)
	m.kept += b.mapped
	m.resident += b.mapped
	for m.kept > keepMapped {
		old := m.free[0]
		m.free = append(m.free[:0], m.free[1:]...)
		m.drop(old)
		m.idle = max(0, m.idle-1)
		unmapped += old.mapped
		unmap(old, of.source(old))
	}
	m.offer(of)
	return unmapped
}

// offer has the system take the pages of the oldest mappings beyond keepResident when it needs memory. A write before that causes no fault. The
// caller holds mu.
func (m *mappings) offer(of *Pool) {
	for i := 0; m.resident > keepResident && i < len(m.free); i++ {
		if b := m.free[i]; !b.empty {
			b.empty = true
			m.resident -= b.mapped
			if of.source(b) == nil {
				_ = unix.Madvise(unsafe.Slice((*byte)(b.ptr), b.mapped), unix.MADV_FREE)
			}
		}
	}
}

// Trim unmaps the large mappings that are kept for reuse.
func (p *Pool) Trim() {
	m := &p.large
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.free {
		p.mapped.Add(-int64(b.mapped))
		unmap(b, p.source(b))
	}
	m.free, m.kept, m.resident, m.idle = nil, 0, 0, 0
}

// ReleaseIdle unmaps the large mappings that are kept for reuse and that nothing has used since the last call, and returns the pages of such
// buffers of slabs. A server calls it regularly, so that the memory of a burst of requests is returned.
func (p *Pool) ReleaseIdle() {
	if p.mapper == nil {
		for c := pageClass; c < numClasses; c++ {
			p.classes[c].releaseIdle(1<<(c+minClassBits), p.advice())
		}
	}
	m := &p.large
	m.mu.Lock()
	old := slices.Clone(m.free[:m.idle])
	m.free = slices.Delete(m.free, 0, m.idle)
	m.idle = len(m.free)
	for _, b := range old {
		m.drop(b)
	}
	m.mu.Unlock()
	for _, b := range old { // requests do not wait for it
		p.mapped.Add(-int64(b.mapped))
		unmap(b, p.source(b))
	}
}

// advice returns what has the system take back pages of slabs.
func (p *Pool) advice() int {
	if p.shared.Load() != nil {
		return unix.MADV_REMOVE
	}
	return unix.MADV_DONTNEED
}

// releaseIdle returns the pages of the idle buffers of a class, each of size bytes, with the system call's advice. Requests do not wait for it: the
// buffers are not in the list meanwhile.
func (l *freeList) releaseIdle(size, advice int) {
	l.mu.Lock()
	at := &l.free
	for range l.n - l.idle {
		at = &(*at).next
	}
	idle := *at
	*at, l.n, l.idle = nil, l.n-l.idle, 0
	l.mu.Unlock()
	n := 0
	for b := idle; b != nil; b = b.next {
		n++
		if !b.empty {
			b.empty = unix.Madvise(unsafe.Slice((*byte)(b.ptr), size), advice) == nil // an error leaves the pages for the next use
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for at = &l.free; *at != nil; at = &(*at).next {
		continue
	}
	*at = idle
	l.n += n
	l.idle = l.n
}

// Close unmaps all memory of a pool with a Mapper. While buffers are in use it unmaps what Trim does, and returns false. Nothing may be
// allocated afterwards.
func (p *Pool) Close() bool {
	p.Trim()
	if p.inUse.Load() != 0 {
		return false
	}
	p.slabs.mu.Lock()
	defer p.slabs.mu.Unlock()
	for _, slab := range p.slabs.list {
		p.mapped.Add(-int64(len(slab)))
		p.mapper.Unmap(slab)
	}
	p.slabs.list = nil
	return true
}

// unmap returns b's mapping to the system. For a mapping of ours that cannot fail; if
// it did, its pages would stay, no more.
func unmap(b *Buffer, from Mapper) {
	m := unsafe.Slice((*byte)(b.ptr), b.mapped)
	if from != nil {
		from.Unmap(m)
		return
	}
	_ = unix.Munmap(m)
}

func mmap(size int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cannot map %d bytes of host memory: %w", size, err)
	}
	if size >= hugeFrom {
		// A fault for every 4 KiB costs more than most uses of a large tensor. Where the
		// system has no huge pages, nothing is lost.
		_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	}
	return m, nil
}
