package ring

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// header is what stands before each kept trace.
type header struct {
	size int    // of the bytes that follow
	prev int    // where the trace before this one is
	seq  uint64 // counts the kept traces of all rings
	id   tracing.TraceID
	took int64
	at   int64 // when it began, in microseconds since 1970
}

const headerBytes = 4 + 4 + 8 + 16 + 8 + 8

// ring keeps traces one behind the other in memory off the Go heap, which the collector
// therefore does not count. A trace that does not fit before the end goes to the start.
type ring struct {
	mu    sync.Mutex
	mem   []byte // guarded by mu, nil when closed
	end   int    // guarded by mu, where the next trace goes
	last  int    // guarded by mu, the newest trace
	first int    // guarded by mu, the oldest
	limit int    // guarded by mu, where the traces before the turn to the start end; 0 without one
	n     int    // guarded by mu
}

// open gets the memory, which takes room only as it is used.
func (g *ring) open(bytes int64) error {
	mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return status.Errorf(status.Internal, "unable to get %d bytes for the trace store: %w", bytes, err)
	}
	g.mem = mem
	return nil
}

func (g *ring) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	mem := g.mem
	g.mem, g.n = nil, 0
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// put keeps one trace and drops as many of the oldest as it needs room.
func (g *ring) put(h *header, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	need := headerBytes + len(b)
	if need > len(g.mem)/4 {
		return // it would stand for many others
	}
	if g.end+need > len(g.mem) {
		g.evict(g.end, len(g.mem)) // what is left of the round before, up to the end
		g.limit, g.end = g.end, 0
	}
	g.evict(g.end, g.end+need)
	h.size, h.prev = len(b), g.last
	if g.n == 0 {
		g.first, g.limit = g.end, 0
	}
	g.write(g.end, h)
	copy(g.mem[g.end+headerBytes:], b)
	g.last = g.end
	g.end += need
	g.n++
}

// evict drops the oldest traces as long as they begin between from and to. Those of the
// round before lie behind the end, those of this one before it.
func (g *ring) evict(from, to int) {
	for g.n > 0 && g.first >= from && g.first < to {
		g.n--
		g.first += headerBytes + g.read(g.first).size
		if g.limit > 0 && g.first >= g.limit {
			g.first, g.limit = 0, 0
		}
	}
}

func (g *ring) write(at int, h *header) {
	b := g.mem[at : at+headerBytes]
	binary.LittleEndian.PutUint32(b, uint32(h.size))
	binary.LittleEndian.PutUint32(b[4:], uint32(h.prev))
	binary.LittleEndian.PutUint64(b[8:], h.seq)
	copy(b[16:32], h.id[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(h.took))
	binary.LittleEndian.PutUint64(b[40:], uint64(h.at))
}

func (g *ring) read(at int) (h header) {
	b := g.mem[at : at+headerBytes]
	h.size, h.prev = int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	h.seq = binary.LittleEndian.Uint64(b[8:])
	copy(h.id[:], b[16:32])
	h.took, h.at = int64(binary.LittleEndian.Uint64(b[32:])), int64(binary.LittleEndian.Uint64(b[40:]))
	return h
}

// kept is a copy of one kept trace.
type kept struct {
	header
	bytes []byte
}

// chunk is how many traces are looked at before those who keep traces may go on.
const chunk = 256

// walk is a way through a ring from the newest trace to the oldest.
type walk struct {
	g    *ring
	next int
	seq  uint64 // of the trace at next, which may be gone since; 0 before the first
	over bool
}

// more returns those of the next traces that want asks for, and nothing at the end.
func (w *walk) more(want func(*header) bool, list []kept) []kept {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n == 0 {
		w.over = true
		return list
	}
	oldest := g.read(g.first).seq
	if w.seq == 0 {
		w.next, w.seq = g.last, g.read(g.last).seq
	}
	for range chunk {
		if w.seq < oldest {
			w.over = true
			return list
		}
		h := g.read(w.next)
		if want(&h) {
			at := w.next + headerBytes
			list = append(list, kept{h, append([]byte(nil), g.mem[at:at+h.size]...)})
		}
		if h.seq == oldest {
			w.over = true
			return list
		}
		w.next = h.prev
		w.seq = g.read(h.prev).seq
	}
	return list
}

// stats returns how full the ring is, and when its oldest trace began.
func (g *ring) stats() (bytes, used int64, n int, oldest int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n > 0 {
		oldest = g.read(g.first).at
		used = int64(g.end - g.first)
		if g.limit > 0 {
			used += int64(g.limit)
		}
	}
	return int64(len(g.mem)), used, g.n, oldest
}
