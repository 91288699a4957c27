package scheduler

import (
	"fmt"
	"time"

	"tutti/core/status"
)

// QueuePolicy says what a queue, or one priority level of it, takes and for how long.
type QueuePolicy struct {
	// MaxSize is the most requests that may wait, 0 for any number.
	MaxSize int
	// Timeout is how long a request may wait, 0 for any time.
	Timeout time.Duration
	// Override lets a request ask for a shorter time; without a Timeout nothing is shorter.
	Override bool
	// Delay keeps a request whose time is over and serves it after those of its level
	// and of higher ones whose time is not; without it such a request is refused.
	Delay bool
}

// Levels are the priority levels of a queue.
type Levels struct {
	// Policies holds one per level, the highest level first; empty for one level
	// without limits.
	Policies []QueuePolicy
	// Default is the level, from 1, of requests that name none.
	Default int
}

// of returns the index of the level that a request's priority means: what is none of
// the levels means the default one.
func (l *Levels) of(priority uint64) int {
	if priority > 0 && priority <= uint64(len(l.Policies)) {
		return int(priority) - 1
	}
	return l.Default - 1
}

// level is a priority level at work.
type level struct {
	QueuePolicy
	n    int // works waiting
	full string
	late error
}

// newLevels returns the levels, with the texts of their refusals.
func newLevels(l *Levels, model string) []level {
	list := make([]level, len(l.Policies))
	for i, p := range l.Policies {
		at := fmt.Sprintf("model '%s'", model)
		if len(list) > 1 {
			at = fmt.Sprintf("priority level %d of model '%s'", i+1, model)
		}
		list[i] = level{
			QueuePolicy: p,
			full:        fmt.Sprintf("Exceeds maximum queue size: %d requests wait for %s, at most %d may", p.MaxSize, at, p.MaxSize),
			late:        status.Errorf(status.Unavailable, "Request timeout expired: the request waited too long for %s", at),
		}
	}
	return list
}

// timeout returns how long a request may wait that asks for so many microseconds; 0
// is for any time.
func (p *QueuePolicy) timeout(asked uint64) time.Duration {
	if p.Override && asked > 0 && asked < uint64(p.Timeout/time.Microsecond) {
		return time.Duration(asked) * time.Microsecond
	}
	return p.Timeout
}

// retryAfter makes a number of nanoseconds whole seconds that a client may wait.
func retryAfter(ns int64) time.Duration {
	const most = 60
	return min(max(time.Duration(ns+int64(time.Second)-1).Truncate(time.Second), time.Second), most*time.Second)
}
