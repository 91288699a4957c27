package cache

import (
	"context"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Cache keeps answers. Its methods are safe for concurrent use. None of them fails a
// request: what goes wrong is a miss, or an answer that is not kept, and is counted.
type Cache interface {
	// Lookup sets out, whose tensors are all absent, to the answer kept under key; the
	// tensors move to the caller, and an output that was absent stays so. It reports
	// whether there was one with as many outputs.
	Lookup(ctx context.Context, key *Key, out []tensor.Tensor) bool
	// Insert keeps a copy of out, which it borrows, under key. It waits for nobody.
	Insert(key *Key, out []tensor.Tensor)
	// Remote reports that Lookup may wait for another process, and that what is kept
	// outlives this one.
	Remote() bool
	// Counts returns what happened so far.
	Counts() telemetry.CacheCounts
	// Close frees what is kept. Nobody calls another method afterwards.
	Close() error
}

// Cacheable reports whether all tensors of list are in memory that the host reads;
// others are neither hashed nor kept.
func Cacheable(list []tensor.Tensor) bool {
	for i := range list {
		if list[i].Present() && list[i].Buf.Place().Kind == tensor.Device {
			return false
		}
	}
	return true
}
