package cache

import (
	"context"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Cache stores responses. Its methods are safe for concurrent use. None of them fails a request: an error counts as
// a miss or as a response that is not stored.
//
// For example, Lookup with an unknown key leaves out unchanged and returns false; after Insert(key, out) the same
// Lookup returns true, until the entry is evicted.
type Cache interface {
	// Lookup sets out, whose tensors must be absent, to the response stored under key. The tensors move to the
	// caller; an output that was absent stays absent. It returns false when there is no response with as many
	// outputs.
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
