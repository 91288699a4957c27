package grpcapi

import (
	"hash/maphash"
	"sync/atomic"
)

// nameCache converts bytes into strings without allocating for names that were seen recently.
type nameCache struct {
	seed  maphash.Seed
	table [256]atomic.Pointer[string]
}

// maxName bounds the cached names.
const maxName = 256

// get returns b as a string.
//
// hot: no allocation for a name seen lately.
func (n *nameCache) get(b []byte) string {
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
