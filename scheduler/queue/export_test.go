package queue

import "github.com/tutti-server/tutti/scheduler"

// Observe has a queue learn that batches of so many elements take ns.
func Observe(s scheduler.Scheduler, size float64, ns int64) {
	q := s.(*Queue) //nolint:forcetypeassert // what New returns
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watching = true
	for range 20 {
		q.latency.Observe(1, size, ns)
	}
}
