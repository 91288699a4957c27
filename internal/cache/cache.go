// Package cache is the contract of the response cache: Key identifies a response and is made by a Hasher, Cache
// stores responses, and Flights executes identical requests in flight once. Front combines them. Two packages
// implement Cache: local in this process's memory, and redis in a server that several processes share.
//
// Front has two users: scheduler/cached in front of a model's queue, and pipeline/exec in front of an ensemble.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Cache stores responses. Its methods are safe for concurrent use. None of them fails a request: an error counts as
// a miss or as a response that is not stored.
//
// For example, Lookup with an unknown key leaves out unchanged and returns false; after Insert(key, out) the same
// Lookup returns true, until the entry is evicted.
type Cache interface {
	// Lookup sets out, whose tensors must be absent, to the response stored under key. The tensors move to the caller;
	// an output that was absent stays absent. It returns false when there is no response with as many outputs.
	Lookup(ctx context.Context, key *Key, out []tensor.Tensor) bool
	// Insert stores a copy of out, which it borrows, under key. It does not block.
	Insert(key *Key, out []tensor.Tensor)
	// Remote reports that Lookup may wait for another process, and that entries outlive this process.
	Remote() bool
	// Counts returns the counters of the cache.
	Counts() telemetry.CacheCounts
	// Close frees the entries. No other method may be called afterwards.
	Close() error
}

// Cacheable reports whether the host can read all tensors of list; others are neither hashed nor stored.
func Cacheable(list []tensor.Tensor) bool {
	for i := range list {
		if list[i].Present() && list[i].Buf.Place().Kind == tensor.Device {
			return false
		}
	}
	return true
}

// Key identifies the response to one request to one loaded version of a model. It is a SHA-256 sum over an unambiguous
// encoding. Clients cannot make requests collide, so an entry needs no copy of its request to compare with.
type Key [sha256.Size]byte

// Hasher makes keys. Get one from a Hashers. It is not safe for concurrent use.
type Hasher struct {
	sum hash.Hash
	buf []byte // not yet in sum
	key Key
}

// Hashers is a pool of Hasher whose keys all begin with the identity of a loaded version.
type Hashers struct {
	identity Key
	pool     pool.Of[Hasher]
}

// NewHashers returns a pool for the version with the given identity.
func NewHashers(identity Key) *Hashers {
	h := &Hashers{identity: identity}
	h.pool.New = func() *Hasher { return &Hasher{sum: sha256.New()} }
	return h
}

// Get returns a hasher that has hashed the identity only.
//
// hot: no allocation in the steady state.
func (p *Hashers) Get() *Hasher {
	h := p.pool.Get()
	h.sum.Reset()
	h.buf = append(h.buf[:0], p.identity[:]...)
	return h
}

// Put returns a hasher for reuse.
func (p *Hashers) Put(h *Hasher) { p.pool.Put(h) }

// Uint adds a number.
func (h *Hasher) Uint(n uint64) { h.buf = binary.LittleEndian.AppendUint64(h.buf, n) }

// Text adds a string after its length.
func (h *Hasher) Text(s string) {
	h.Uint(uint64(len(s)))
	h.buf = append(h.buf, s...)
}

// Tensor adds the type, shape and bytes of a tensor, or that it is absent. The host must be able to read its memory.
func (h *Hasher) Tensor(t *tensor.Tensor) {
	if !t.Present() {
		h.buf = append(h.buf, 0)
		return
	}
	h.buf = append(h.buf, 1, byte(t.DType))
	dims := t.Shape.Dims()
	h.Uint(uint64(len(dims)))
	for _, d := range dims {
		h.Uint(uint64(d))
	}
	h.Uint(uint64(t.Len))
	if t.Len <= smallTensor {
		h.buf = append(h.buf, t.Bytes()...)
		return
	}
	h.flush()
	_, _ = h.sum.Write(t.Bytes()) // a hash takes everything
}

// smallTensor is the largest size of a tensor that is buffered and hashed together with its neighbours.
const smallTensor = 1 << 12

// Meta adds the metadata that a model can read besides its inputs: the parameters and the sequence. The id, the
// priority and the timeout do not change a response.
func (h *Hasher) Meta(m *infer.Meta) {
	h.Uint(m.Sequence.ID)
	h.Text(m.Sequence.Name)
	h.buf = append(h.buf, bit(m.Sequence.Start), bit(m.Sequence.End))
	h.Uint(uint64(len(m.Params)))
	for i := range m.Params {
		p := &m.Params[i]
		h.Text(p.Key)
		h.buf = append(h.buf, byte(p.Kind), bit(p.Bool))
		h.Uint(uint64(p.Int))
		h.Uint(p.Uint)
		h.Uint(math.Float64bits(p.Double))
		h.Text(p.String)
	}
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (h *Hasher) flush() {
	_, _ = h.sum.Write(h.buf) // a hash takes everything
	h.buf = h.buf[:0]
}

// Key returns the key of everything added since Get.
func (h *Hasher) Key() Key {
	h.flush()
	h.sum.Sum(h.key[:0])
	return h.key
}
