package queue

import (
	"math/bits"

	"github.com/tutti-server/tutti/scheduler"
)

// dueOrder orders the tasks of a priority level by when they must be done, once one of them has a deadline. A task without one is ordered
// as if it had the usual deadline, so that none of either kind starves; among themselves such tasks keep the order of arrival. Without
// deadlines every key is 0, and the order is that of arrival.
//
// Keys are rounded down, so that tasks that are due at about the same time share a lane: to a millisecond, or to 1/64 of the time that is
// left when the task is queued. There are at most about 64 keys for each power of two of time.
type dueOrder struct {
	on    bool  // a queued task has, or has had, a deadline
	usual int64 // mean time until tasks with deadlines are due, when they are queued; ns
}

const (
	// dueBits is the logarithm of the least distance of keys, about a millisecond in ns.
	dueBits = 20
	// finest is the logarithm of how much of the time left the distance of keys is.
	finest = 6
)

// key returns the key of a task that is queued now.
//
// hot: two comparisons without deadlines.
func (o *dueOrder) key(w *scheduler.Task, now int64) int64 {
	due := w.Meta.Deadline
	switch {
	case due > 0:
		due = w.Due()
		left := max(due-now, 1)
		if o.on = true; o.usual == 0 {
			o.usual = left
		}
		o.usual += (left - o.usual) / costWeight
	case !o.on:
		return 0
	default:
		due = now + o.usual
	}
	return roundDue(due, now)
}

// roundDue rounds a time down, the more the farther it is away.
func roundDue(due, now int64) int64 {
	shift := max(dueBits, bits.Len64(uint64(max(due-now, 1)))-finest) //nolint:gosec // positive
	return max(due>>shift<<shift, 1)
}
