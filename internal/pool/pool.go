// Package pool is sync.Pool with a type: it reuses values that are costly to allocate. Names does so for strings.
package pool

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Of is a pool of values of type T. The zero value is ready to use and makes values with
// new(T). Its methods are safe for concurrent use.
//
// Get moves a value to the caller and Put moves it back. The caller clears what must not
// outlive the use, for example references to tensors. The collector may drop values that
// are in the pool at any time.
type Of[T any] struct {
	// New makes a value when the pool is empty, in place of new(T). It must be set before
	// the first Get.
	New  func() *T
	pool sync.Pool
}

// Get returns a value from the pool, or a new one.
func (p *Of[T]) Get() *T {
	if v, ok := p.pool.Get().(*T); ok {
		return v
	}
	if p.New != nil {
		return p.New()
	}
	return new(T)
}

// Put adds v, which the caller must not use afterwards.
func (p *Of[T]) Put(v *T) { p.pool.Put(v) }

// Names converts bytes into strings without allocating for names that were seen recently. The zero value is ready to use.
// It is safe for concurrent use.
type Names struct {
	table [256]atomic.Pointer[string]
}

var seed = maphash.MakeSeed()

// maxName bounds the names that are kept.
const maxName = 256

// Get returns b as a string.
//
// hot: no allocation for a name seen lately.
func (n *Names) Get(b []byte) string {
	if len(b) == 0 || len(b) > maxName {
		return string(b)
	}
	slot := &n.table[maphash.Bytes(seed, b)%uint64(len(n.table))]
	if known := slot.Load(); known != nil && *known == string(b) {
		return *known
	}
	s := string(b)
	slot.Store(&s)
	return s
}
