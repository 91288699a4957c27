package pool

import (
	"hash/maphash"
	"sync/atomic"
)

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
