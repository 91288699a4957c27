// Package local stores responses in this process's memory.
//
// An entry is one buffer off the Go heap with all tensors of the response, and a small header. A hit returns
// references to it: nothing is copied, and the garbage collector does not scan the bytes. Inserting copies once,
// because a tensor may be a view of a whole batch, or memory that a runtime reuses. For example, a hit on a 600 kB
// response takes a reference, not 600 kB.
package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Settings are the parameters of New.
type Settings struct {
	Size  int64            // Size bounds the cache in bytes: tensors and their headers
	Alloc tensor.Allocator // Alloc allocates the tensors' memory, on the host
	// Log receives a warning when a response is too large to be stored. Optional.
	Log *slog.Logger

	_ struct{}
}

// Cache stores responses and evicts the least recently used ones when it is full. It is safe for concurrent use.
type Cache struct {
	alloc  tensor.Allocator
	log    *slog.Logger
	size   int64 // of a shard
	shards []shard
	warned atomic.Int64 // time of the last warning about a response that is too large

	lookups, hits, evictions, refused atomic.Uint64
	lookupNs, insertNs                atomic.Uint64
}

// shard is a part of the cache with its own lock.
type shard struct {
	mu      sync.Mutex
	entries map[cache.Key]*entry // guarded by mu
	recent  entry                // ring: next is the most recently used, prev the least; guarded by mu
	used    int64                // guarded by mu
	_       [64]byte
}

type entry struct {
	key        cache.Key
	next, prev *entry
	size       int64
	buf        *tensor.Buffer
	out        []tensor.Tensor // views of buf that hold no references
}

const (
	maxShards = 16
	// shardSize is the minimum size of a shard, so that it can store large responses.
	shardSize = 32 << 20
	// maxVictims bounds the entries that one insertion evicts: it runs before the request's client gets its response.
	maxVictims = 64
	// overhead is the size of an entry besides its tensors, headerSize the overhead of each tensor.
	overhead   = 256
	headerSize = 144
)

// Parse parses the settings of --cache-config local, of which there is one: size.
func Parse(config map[string]string) (size int64, err error) {
	text, ok := config["size"]
	if !ok {
		return 0, errors.New("--cache-config local has no size, expected local,size=BYTES")
	}
	size, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("--cache-config local,size=%s, expected a number of bytes from 1 on", text)
	}
	return size, nil
}

// New returns an empty cache.
func New(s Settings) *Cache {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	n := min(maxShards, max(1, s.Size/shardSize))
	c := &Cache{alloc: s.Alloc, log: s.Log, size: s.Size / n, shards: make([]shard, n)}
	for i := range c.shards {
		sh := &c.shards[i]
		sh.entries = map[cache.Key]*entry{}
		sh.recent.next, sh.recent.prev = &sh.recent, &sh.recent
	}
	return c
}

func (c *Cache) shard(key *cache.Key) *shard {
	return &c.shards[binary.LittleEndian.Uint64(key[:])%uint64(len(c.shards))]
}

// Remote returns false: a lookup does not leave the process.
func (*Cache) Remote() bool { return false }

// Lookup implements cache.Cache.
//
// hot: one short lock, no allocation.
func (c *Cache) Lookup(_ context.Context, key *cache.Key, out []tensor.Tensor) bool {
	began := telemetry.Now()
	found := c.shard(key).lookup(key, out)
	c.lookups.Add(1)
	if found {
		c.hits.Add(1)
	}
	c.lookupNs.Add(uint64(max(0, telemetry.Now()-began)))
	return found
}

// lookup sets out to new references to the entry's tensors.
func (s *shard) lookup(key *cache.Key, out []tensor.Tensor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[*key]
	if e == nil || len(e.out) != len(out) {
		return false
	}
	for i := range e.out {
		out[i] = e.out[i].Retain()
	}
	e.unlink()
	s.recent.push(e)
	return true
}

// push links e after r.
func (r *entry) push(e *entry) {
	e.prev, e.next = r, r.next
	r.next.prev, r.next = e, e
}

func (r *entry) unlink() { r.prev.next, r.next.prev = r.next, r.prev }

// Insert implements cache.Cache. It does not store a response that is larger than a shard, or that would evict more
// than maxVictims others.
func (c *Cache) Insert(key *cache.Key, out []tensor.Tensor) {
	began := telemetry.Now()
	if !c.insert(key, out) {
		c.refused.Add(1)
	}
	c.insertNs.Add(uint64(max(0, telemetry.Now()-began)))
}

func (c *Cache) insert(key *cache.Key, out []tensor.Tensor) bool {
	bytes := 0
	for i := range out {
		bytes += padded(out[i].Len)
	}
	size := int64(overhead+headerSize*len(out)) + rounded(bytes)
	if size > c.size {
		c.warnTooLarge(key, size)
		return false
	}
	buf, err := c.alloc.Alloc(bytes)
	if err != nil {
		return false
	}
	victims, kept := c.shard(key).add(c.size, &entry{key: *key, size: size, buf: buf, out: copied(buf, out)})
	if !kept {
		buf.Release()
	}
	for e := victims; e != nil; e = e.next {
		e.buf.Release()
		c.evictions.Add(1)
	}
	return kept
}

// warnEvery is the shortest time between two warnings about responses that are too large.
const warnEvery = int64(time.Minute)

// warnTooLarge logs that a response is too large to be stored, at most once per warnEvery.
func (c *Cache) warnTooLarge(key *cache.Key, size int64) {
	now, last := telemetry.Now(), c.warned.Load()
	if last != 0 && now-last < warnEvery || !c.warned.CompareAndSwap(last, max(now, 1)) {
		return
	}
	//nolint:sloglint // the words are Triton's, which people look for
	c.log.Warn(fmt.Sprintf("Failed to insert key [%x] into response cache: the entry takes %d bytes, expected at most %d;"+
		" --cache-config local,size=BYTES makes room (further ones are told at most once a minute)", key[:8], size, c.size))
}

// alignment is the alignment of every tensor in an entry's buffer.
const alignment = 64

func padded(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// rounded returns the size that n bytes take in a pool of power-of-two classes.
func rounded(n int) int64 {
	size := int64(alignment)
	for size < int64(n) && size < 1<<20 {
		size *= 2
	}
	return max(size, int64(n))
}

// copied copies the tensors into buf and returns the views.
func copied(buf *tensor.Buffer, out []tensor.Tensor) []tensor.Tensor {
	views := make([]tensor.Tensor, len(out))
	memory, off := buf.Bytes(), 0
	for i := range out {
		if !out[i].Present() {
			continue
		}
		t := &out[i]
		copy(memory[off:], t.Bytes())
		views[i] = tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: buf, Off: off, Len: t.Len}
		off += padded(t.Len)
	}
	return views
}

// add links e after it has evicted the least recently used entries until e fits. kept is false when e does not fit
// or its key is already stored. victims is a chain of the evicted ones, whose memory the caller frees.
func (s *shard) add(limit int64, e *entry) (victims *entry, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key] != nil {
		return victims, false // another request stored it first
	}
	for n := 0; s.used+e.size > limit; n++ {
		old := s.recent.prev
		if n == maxVictims || old == &s.recent {
			return victims, false
		}
		old.unlink()
		delete(s.entries, old.key)
		s.used -= old.size
		old.next, victims = victims, old
	}
	s.entries[e.key] = e
	s.used += e.size
	s.recent.push(e)
	return victims, true
}

// Counts implements cache.Cache.
func (c *Cache) Counts() telemetry.CacheCounts {
	n := telemetry.CacheCounts{
		Sized: true, Lookups: c.lookups.Load(), Hits: c.hits.Load(), Evictions: c.evictions.Load(), Dropped: c.refused.Load(),
		LookupNs: c.lookupNs.Load(), InsertNs: c.insertNs.Load(),
	}
	used := int64(0)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n.Entries += uint64(len(s.entries))
		used += s.used
		s.mu.Unlock()
	}
	n.Util = float64(used) / float64(c.size*int64(len(c.shards)))
	return n
}

// Close frees every entry.
func (c *Cache) Close() error {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			e.buf.Release()
		}
		clear(s.entries)
		s.recent.next, s.recent.prev, s.used = &s.recent, &s.recent, 0
		s.mu.Unlock()
	}
	return nil
}
