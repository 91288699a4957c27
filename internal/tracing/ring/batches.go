package ring

import (
	"sync"

	"github.com/tutti-server/tutti/internal/tracing"
)

// maxBatches is how many executed batches are known.
const maxBatches = 1 << 12

// batches are the last executed batches, each at the place that its number says.
type batches struct {
	locks [16]sync.Mutex
	list  []tracing.Batch // guarded by the locks, each for every 16th
}

// put takes a batch.
func (b *batches) put(x *tracing.Batch) {
	i := x.Batch % uint64(len(b.list))
	l := &b.locks[i%uint64(len(b.locks))]
	l.Lock()
	defer l.Unlock()
	b.list[i] = *x
	b.list[i].Links = nil
}

// find returns the batch of a number, if it is still known.
func (b *batches) find(id uint64) (x tracing.Batch, ok bool) {
	i := id % uint64(len(b.list))
	l := &b.locks[i%uint64(len(b.locks))]
	l.Lock()
	defer l.Unlock()
	x = b.list[i]
	return x, id != 0 && x.Batch == id
}
