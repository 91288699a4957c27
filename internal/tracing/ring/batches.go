package ring

import (
	"sync"

	"github.com/tutti-server/tutti/internal/tracing"
)

// maxBatches is the number of executed batches that are retained.
const maxBatches = 1 << 12

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
