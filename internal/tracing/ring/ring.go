package ring

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// header precedes each retained trace.
type header struct {
	size     int    // bytes of the record that follows
	prev     int    // offset of the previous trace
	seq      uint64 // counts the retained traces of all rings
	id       tracing.TraceID
	duration int64
	at       int64 // when it began, in microseconds since 1970
}

const headerBytes = 4 + 4 + 8 + 16 + 8 + 8

// ring stores traces one after another in memory outside of the Go heap, so that the garbage collector does not
// account for it. A trace that does not fit before the end is stored at the start.
type ring struct {
	mu    sync.Mutex
	mem   []byte // guarded by mu, nil when closed
	end   int    // guarded by mu, where the next trace goes
	last  int    // guarded by mu, the newest trace
	first int    // guarded by mu, the oldest
	limit int    // guarded by mu, the end of the traces stored before the wrap; 0 without one
	n     int    // guarded by mu
}

// open maps the memory. The system provides pages as they are used.
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

// put stores one trace and drops as many of the oldest as necessary.
func (g *ring) put(h *header, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	need := headerBytes + len(b)
	if need > len(g.mem)/4 {
		return // it would replace many others
	}
	if g.end+need > len(g.mem) {
		g.evict(g.end, len(g.mem)) // the rest of the previous round
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

// evict drops the oldest traces while they begin between from and to. Traces of the previous round are behind the
// end, those of the current round before it.
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
	binary.LittleEndian.PutUint64(b[32:], uint64(h.duration))
	binary.LittleEndian.PutUint64(b[40:], uint64(h.at))
}

func (g *ring) read(at int) (h header) {
	b := g.mem[at : at+headerBytes]
	h.size, h.prev = int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	h.seq = binary.LittleEndian.Uint64(b[8:])
	copy(h.id[:], b[16:32])
	h.duration, h.at = int64(binary.LittleEndian.Uint64(b[32:])), int64(binary.LittleEndian.Uint64(b[40:]))
	return h
}

// entry is a copy of a retained trace.
type entry struct {
	header
	bytes []byte
}

const chunk = 256 // the number of traces that a search visits before it releases the lock

// walk iterates a ring from the newest trace to the oldest.
type walk struct {
	g    *ring
	next int
	seq  uint64 // number of the trace at next, which may be replaced since; 0 before the first
	over bool
}

// more appends the traces of the next chunk that want selects. It sets over at the end.
func (w *walk) more(want func(*header) bool, list []entry) []entry {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.over = g.n == 0; w.over {
		return list
	}
	oldest := g.read(g.first).seq
	if w.seq == 0 {
		w.next, w.seq = g.last, g.read(g.last).seq
	}
	for range chunk {
		if w.over = w.seq < oldest; w.over {
			return list
		}
		h := g.read(w.next)
		if want(&h) {
			at := w.next + headerBytes
			list = append(list, entry{h, append([]byte(nil), g.mem[at:at+h.size]...)})
		}
		if w.over = h.seq == oldest; w.over {
			return list
		}
		w.next = h.prev
		w.seq = g.read(h.prev).seq
	}
	return list
}

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

const maxBatches = 1 << 12 // the number of executed batches that are retained

// batches are the last executed batches. A batch is at the index of its number modulo maxBatches.
type batches struct {
	locks [16]sync.Mutex
	list  []tracing.Batch // guarded by locks; each lock guards every 16th
}

// put stores a batch.
func (b *batches) put(x *tracing.Batch) {
	i := x.Batch % uint64(len(b.list))
	l := &b.locks[i%uint64(len(b.locks))]
	l.Lock()
	defer l.Unlock()
	b.list[i] = *x
	b.list[i].Links = nil
}

// find returns the batch of a number; ok is false if it was replaced.
func (b *batches) find(id uint64) (x tracing.Batch, ok bool) {
	i := id % uint64(len(b.list))
	l := &b.locks[i%uint64(len(b.locks))]
	l.Lock()
	defer l.Unlock()
	x = b.list[i]
	return x, id != 0 && x.Batch == id
}

// Timeline implements inspect.Inspector.
func (s *Store) Timeline(q *inspect.TimelineQuery) *inspect.TimelineView {
	t := inspect.NewTimeline(q, s.epoch)
	s.batches.each(func(b *tracing.Batch) {
		t.Oldest(b)
		if q.Ran(b, s.epoch) {
			t.Add(b)
		}
	})
	return t.View()
}

// each calls f with every stored batch, which f borrows. Requests that store batches wait for at most a sixteenth of the calls.
func (b *batches) each(f func(*tracing.Batch)) {
	for lock := range b.locks {
		b.locks[lock].Lock()
		for i := lock; i < len(b.list); i += len(b.locks) {
			if b.list[i].Batch != 0 {
				f(&b.list[i])
			}
		}
		b.locks[lock].Unlock()
	}
}

// Bounds of a page of traces.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

// found is a trace that matches a query.
type found struct {
	seq     uint64
	summary inspect.TraceSummary
}

// Traces implements inspect.Inspector.
func (s *Store) Traces(q *inspect.TraceQuery) (*inspect.TraceList, error) {
	limit := min(cmp.Or(max(q.Limit, 0), defaultLimit), maxLimit)
	var all []found
	for i, name := range reasons {
		if q.Retained != "" && q.Retained != name {
			continue
		}
		list, err := s.rings[i].search(q, name, limit+1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.seq, a.seq) })
	list := &inspect.TraceList{Traces: []inspect.TraceSummary{}, Newest: s.seq.Load()}
	for i := range all[:min(len(all), limit)] {
		list.Traces = append(list.Traces, all[i].summary)
		if i == limit-1 && len(all) > limit {
			list.Next = all[i].seq
		}
	}
	return list, nil
}

// search returns at most limit traces of a ring, the newest first.
func (g *ring) search(q *inspect.TraceQuery, name string, limit int) (list []found, err error) {
	w := walk{g: g}
	var id tracing.TraceID
	if q.TraceID != "" {
		if id, err = tracing.ParseTraceID(q.TraceID); err != nil {
			return nil, err
		}
	}
	want := func(h *header) bool {
		return (q.Cursor == 0 || h.seq < q.Cursor) && h.seq > q.After && (q.TraceID == "" || h.id == id) &&
			h.duration >= q.MinNs && (q.MaxNs == 0 || h.duration <= q.MaxNs) && h.at >= q.FromUs && (q.ToUs == 0 || h.at <= q.ToUs)
	}
	var some []entry
	for !w.over && len(list) < limit {
		if w.seq != 0 && w.seq <= q.After {
			break
		}
		some = w.more(want, some[:0])
		for i := range some {
			r, err := decodeRecord(some[i].bytes)
			if err != nil {
				return nil, err
			}
			if matches(q, r) && len(list) < limit {
				list = append(list, found{some[i].seq, inspect.NewTraceSummary(r, name)})
			}
		}
	}
	return list, nil
}

// matches reports whether a record matches a query whose header already matched.
func matches(q *inspect.TraceQuery, r *tracing.Record) bool {
	isStep := func(s tracing.Step) bool { return s.Model == q.Model }
	if q.Request != "" && q.Request != r.Request || q.Model != "" && r.Model != q.Model && !slices.ContainsFunc(r.Steps, isStep) {
		return false
	}
	if q.Status != "" && q.Status != inspect.StatusOf(r.Failed, r.Code) && (q.Status != "failed" || !r.Failed) {
		return false
	}
	return q.Param == "" || slices.ContainsFunc(r.Params, func(p tracing.Param) bool {
		return p.Key == q.Param && (q.Value == "" || p.Value == q.Value)
	})
}

// FindTrace implements inspect.Inspector.
func (s *Store) FindTrace(id string) (*inspect.TraceView, error) {
	r, name, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return s.view(r, name), nil
}

// FindRecord implements inspect.Inspector.
func (s *Store) FindRecord(id string) (*tracing.Record, error) {
	r, _, err := s.find(id)
	return r, err
}

// find returns the record of a trace by its id, or by TRACE-SPAN, and the reason for which it is retained.
func (s *Store) find(id string) (*tracing.Record, string, error) {
	id, span, one := strings.Cut(id, "-")
	want, err := tracing.ParseTraceID(id)
	if err != nil {
		return nil, "", err
	}
	for i, name := range reasons {
		w := walk{g: &s.rings[i]}
		for !w.over {
			for _, k := range w.more(func(h *header) bool { return h.id == want }, nil) {
				r, err := decodeRecord(k.bytes)
				if err != nil {
					return nil, "", err
				}
				if !one || r.Span.String() == span {
					return r, name, nil
				}
			}
		}
	}
	return nil, "", status.Errorf(status.NotFound, "trace '%s' is not stored", id)
}

func (s *Store) view(r *tracing.Record, name string) *inspect.TraceView {
	v := inspect.NewTraceView(r, name)
	for i := range r.Steps {
		if b, ok := s.batches.find(r.Steps[i].Batch); ok {
			v.Batches = append(v.Batches, inspect.NewBatchSummary(&b))
		}
	}
	return v
}

// FindBatch implements inspect.Inspector.
func (s *Store) FindBatch(id uint64) (*inspect.BatchView, error) {
	b, ok := s.batches.find(id)
	if !ok {
		return nil, status.Errorf(status.NotFound, "batch %d is not stored", id)
	}
	return inspect.NewBatchView(&b, s.epoch), nil
}

// Sampling implements inspect.Inspector.
func (s *Store) Sampling() inspect.Sampling { return *s.sampling.Load() }

// SetSampling implements inspect.Inspector.
func (s *Store) SetSampling(set inspect.Sampling) error {
	s.sampling.Store(&set)
	return nil
}

// Stats returns the size and the use of the store.
func (s *Store) Stats() *inspect.StoreView {
	v := &inspect.StoreView{Bytes: s.bytes}
	for i, name := range reasons {
		bytes, used, n, oldest := s.rings[i].stats()
		v.Rings = append(v.Rings, inspect.RingStats{Retained: name, Bytes: bytes, Used: used, Traces: n, OldestUs: oldest})
	}
	return v
}
