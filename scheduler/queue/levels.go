package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// Policy limits what waits in a queue, or in one of its priority levels.
type Policy struct {
	// MaxSize is the most requests that may wait, 0 for any number.
	MaxSize int
	// Timeout is how long a request may wait, 0 for any time.
	Timeout time.Duration
	// Override allows requests to set a shorter timeout. Without a Timeout no request can.
	Override bool
	// Delay serves a request past its timeout after the others of its level and of higher ones;
	// without it such a request is refused.
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

func newLevels(l Levels, model string) levels {
	return levels{prefers: l, model: model, others: map[uint64]*level{}, most: fewLevels}
}

// at returns the level of a request's priority.
//
// hot: one array access where there are few levels.
func (x *levels) at(priority uint64) *level {
	number := x.prefers.of(priority)
	if number >= fewLevels {
		return x.other(number)
	}
	if x.first[number] == nil {
		x.first[number] = x.make(number)
	}
	return x.first[number]
}

// other returns one of the lower levels, a new one unless it was used lately.
func (x *levels) other(number uint64) *level {
	if l := x.others[number]; l != nil {
		return l
	}
	if len(x.others) >= x.most {
		for k, l := range x.others {
			if l.n == 0 {
				delete(x.others, k)
			}
		}
		x.most = max(fewLevels, 2*len(x.others))
	}
	l := x.make(number)
	x.others[number] = l
	return l
}

func (x *levels) make(number uint64) *level {
	return &level{Policy: x.prefers.policy(number), number: number}
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
		l.late = status.Errorf(status.Unavailable, "Request timeout expired: the request waited too long for %s", x.name(l))
	}
	return l.late
}

// errFull returns the error of a task whose level is full, where a task takes perTask ns: the time that
// it would wait becomes Retry-After.
func (x *levels) errFull(l *level, perTask int64) error {
	if l.full == "" {
		l.full = fmt.Sprintf("Exceeds maximum queue size: %d requests wait for %s, at most %d may", l.MaxSize, x.name(l), l.MaxSize)
	}
	return &status.Error{Code: status.Unavailable, Msg: l.full, RetryAfter: retryAfter(int64(l.n) * perTask)}
}

// timeout returns how long a request may wait that asks for so many microseconds; 0 for any time.
func (p *Policy) timeout(micros uint64) time.Duration {
	if p.Override && micros > 0 && micros < uint64(p.Timeout/time.Microsecond) {
		return time.Duration(micros) * time.Microsecond
	}
	return p.Timeout
}

// expires returns when the timeout of a request ends that is queued at now, 0 for never.
func (p *Policy) expires(m *infer.Meta, now int64) int64 {
	from := now
	if m.Arrived > 0 {
		from = m.Arrived
	}
	if t := p.timeout(m.Timeout); t > 0 && int64(t) < math.MaxInt64-from {
		return from + int64(t)
	}
	return 0
}

// retryAfter rounds up to whole seconds, from 1 to 60.
func retryAfter(ns int64) time.Duration {
	const most = 60
	return min(max(time.Duration(ns+int64(time.Second)-1).Truncate(time.Second), time.Second), most*time.Second)
}
