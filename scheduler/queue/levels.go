package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// Policy is Triton's ModelQueuePolicy: it limits what waits in a queue, or in one of its priority levels. A
// scheduler.Policy, in contrast, forms batches.
type Policy struct {
	// MaxSize is the most requests that may wait, 0 for any number.
	MaxSize int
	// Timeout is how long a request may wait, 0 for any time.
	Timeout time.Duration
	// Override allows requests to set a shorter timeout. Without a Timeout no request can.
	Override bool
	// Delay serves a request past its timeout after the others of its level; without it, it is refused.
	Delay bool
}

// Levels are the priority levels of a queue. There may be any number: only those in which requests
// wait take memory. For example, two levels of which the lower one holds at most 100 requests:
//
//	queue.Levels{Count: 2, Default: 2, Policies: map[uint64]queue.Policy{2: {MaxSize: 100}}}
type Levels struct {
	// Count is the number of levels, of which 1 is the highest; 0 for a queue without levels.
	Count uint64
	// Default is the level of requests without a priority; 0 without levels.
	Default uint64
	// Policy holds for levels without one in Policies.
	Policy Policy
	// Policies are those of single levels.
	Policies map[uint64]Policy
}

// Free reports whether there are neither levels nor limits.
func (l *Levels) Free() bool { return l.Count == 0 && l.Policy == (Policy{}) }

// of returns the level of a request's priority: the default one for a priority that is no level.
func (l *Levels) of(priority uint64) uint64 {
	if priority > 0 && priority <= l.Count {
		return priority
	}
	return l.Default
}

// policy returns the policy of a level.
func (l *Levels) policy(number uint64) Policy {
	if p, ok := l.Policies[number]; ok {
		return p
	}
	return l.Policy
}

// level is a priority level in which requests wait or have waited.
type level struct {
	Policy
	number uint64
	n      int // tasks waiting
	// The errors of refused tasks, made when the first one is refused.
	full string
	late error
}

// rank returns the level's position in the order of service; the next one is that of its tasks past
// their timeout. Levels beyond 2^63 share a position.
func (l *level) rank() uint64 { return 2 * min(l.number, math.MaxInt64) }

// levels are the priority levels of one queue, made when requests come for them.
type levels struct {
	prefers Levels
	model   string
	first   [fewLevels]*level // the highest ones, by number; they stay
	others  map[uint64]*level
	most    int // others to keep, empty ones included
}

// fewLevels is how many of the highest levels are found without a map, and how many others are kept for tasks to come.
const fewLevels = 16

// at returns the level of a request's priority, a new one unless it was used lately.
//
// hot: one array access where there are few levels.
func (x *levels) at(priority uint64) *level {
	number := x.prefers.of(priority)
	if number < fewLevels && x.first[number] != nil {
		return x.first[number]
	}
	return x.other(number)
}

// other returns a level that is not among the first, or is used for the first time.
func (x *levels) other(number uint64) *level {
	l := x.others[number]
	if l != nil {
		return l
	}
	l = &level{Policy: x.prefers.policy(number), number: number}
	if number < fewLevels {
		x.first[number] = l
		return l
	}
	if len(x.others) >= x.most {
		maps.DeleteFunc(x.others, func(_ uint64, l *level) bool { return l.n == 0 })
		x.most = max(fewLevels, 2*len(x.others))
	}
	x.others[number] = l
	return l
}

// name returns the name of a level for error messages.
func (x *levels) name(l *level) string {
	if x.prefers.Count > 1 {
		return fmt.Sprintf("priority level %d of model '%s'", l.number, x.model)
	}
	return fmt.Sprintf("model '%s'", x.model)
}

// errLate returns the error of a task that waited for longer than its level allows.
func (x *levels) errLate(l *level) error {
	if l.late == nil {
		l.late = status.Reasonf(status.QueueTimeout, "Request timeout expired: the request waited too long for %s", x.name(l))
	}
	return l.late
}

// errFull returns the error of a task whose level is full. Its delay is the time that the task would wait, a minute at most: the predicted
// one, or where nothing is predicted that of the level's tasks, of perTask ns each. It is a second where neither is known.
func (x *levels) errFull(priority uint64, perTask, predicted int64) error {
	l := x.at(priority)
	if l.full == "" {
		l.full = fmt.Sprintf("Exceeds maximum queue size: %d requests wait for %s, at most %d may", l.MaxSize, x.name(l), l.MaxSize)
	}
	wait := time.Duration(cmp.Or(predicted, int64(l.n)*perTask, int64(time.Second)))
	return &status.Error{Code: status.Unavailable, Reason: status.QueueFull, Msg: l.full, RetryAfter: min(max(wait, time.Millisecond), time.Minute)}
}

// expires returns when the timeout of a request ends that is queued at now, 0 for never.
func (p *Policy) expires(m *infer.Meta, now int64) int64 {
	timeout := p.Timeout
	if p.Override && m.Timeout > 0 && m.Timeout < uint64(p.Timeout/time.Microsecond) {
		timeout = time.Duration(m.Timeout) * time.Microsecond
	}
	from := now
	if m.Arrived > 0 {
		from = m.Arrived
	}
	if timeout > 0 && int64(timeout) < math.MaxInt64-from {
		return from + int64(timeout)
	}
	return 0
}
