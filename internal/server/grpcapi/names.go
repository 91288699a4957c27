package grpcapi

import (
	"hash/maphash"
	"sync/atomic"
)

// names turns the bytes of names that come with every request into strings without
// allocating for those seen lately.
type names struct {
	seed  maphash.Seed
	table [256]atomic.Pointer[string]
}

// maxName bounds what is kept. Longer names are no model's.
const maxName = 256

// of returns b as a string.
//
// hot: no allocation for a name seen lately.
func (n *names) of(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > maxName {
		return string(b)
	}
	slot := &n.table[maphash.Bytes(n.seed, b)%uint64(len(n.table))]
	if known := slot.Load(); known != nil && *known == string(b) {
		return *known
	}
	s := string(b)
	slot.Store(&s)
	return s
}
