package scheduler

import (
	"fmt"
	"math"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
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

// Levels are the priority levels of a queue. There may be any number of them: only those
// in which requests wait take memory.
type Levels struct {
	// Count is how many there are, of which 1 is the highest; 0 for a queue without levels.
	Count uint64
	// Default is the level of requests that name none; 0 without levels.
	Default uint64
	// Policy is that of each level which has none in Own.
	Policy QueuePolicy
	// Own are the policies of single levels.
	Own map[uint64]QueuePolicy
}

// Free reports whether there are neither levels nor limits.
func (l *Levels) Free() bool { return l.Count == 0 && l.Policy == (QueuePolicy{}) }

// of returns the level that a request's priority means: what is none of the levels means
// the default one.
func (l *Levels) of(priority uint64) uint64 {
	if priority > 0 && priority <= l.Count {
		return priority
	}
	return l.Default
}

// policy returns what holds in a level.
func (l *Levels) policy(number uint64) QueuePolicy {
	if p, ok := l.Own[number]; ok {
		return p
	}
	return l.Policy
}

// level is a priority level in which requests wait, or did.
type level struct {
	QueuePolicy
	number uint64
	n      int // works waiting
	// What is said of works that are refused, made when the first one is.
	full string
	late error
}

// rank returns the level's place in the order of service; the next one is that of works
// whose time is over. Levels beyond 2^63 have one place.
func (l *level) rank() uint64 { return 2 * min(l.number, math.MaxInt64) }

// levels are the priority levels of one queue, made when requests come for them.
type levels struct {
	prefers Levels
	model   string
	first   [fewLevels]*level // the highest ones, by number; they stay
	others  map[uint64]*level
	most    int // others to keep, empty ones with them
}

// fewLevels is how many of the highest levels are found without a map, and how many others
// are kept in mind, for their works to come.
const fewLevels = 16

func newLevels(l Levels, model string) levels {
	return levels{prefers: l, model: model, others: map[uint64]*level{}, most: fewLevels}
}

// at returns the level of a request's priority.
//
// hot: one look at an array where there are few levels.
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

// other returns one of the lower levels, a new one where it has not been used lately.
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
	return &level{QueuePolicy: x.prefers.policy(number), number: number}
}

// name says which queue a level is, for people.
func (x *levels) name(l *level) string {
	if x.prefers.Count > 1 {
		return fmt.Sprintf("priority level %d of model '%s'", l.number, x.model)
	}
	return fmt.Sprintf("model '%s'", x.model)
}

// errLate returns why a work is refused that waited for longer than its level allows.
func (x *levels) errLate(l *level) error {
	if l.late == nil {
		l.late = status.Errorf(status.Unavailable, "Request timeout expired: the request waited too long for %s", x.name(l))
	}
	return l.late
}

// errFull returns why a work is refused whose level is full, and the end of how long it
// would wait, where a work takes perWork ns; Retry-After comes of it.
func (x *levels) errFull(l *level, perWork int64) error {
	if l.full == "" {
		l.full = fmt.Sprintf("Exceeds maximum queue size: %d requests wait for %s, at most %d may", l.MaxSize, x.name(l), l.MaxSize)
	}
	return &status.Error{Code: status.Unavailable, Msg: l.full, RetryAfter: retryAfter(int64(l.n) * perWork)}
}

// timeout returns how long a request may wait that asks for so many microseconds; 0
// is for any time.
func (p *QueuePolicy) timeout(asked uint64) time.Duration {
	if p.Override && asked > 0 && asked < uint64(p.Timeout/time.Microsecond) {
		return time.Duration(asked) * time.Microsecond
	}
	return p.Timeout
}

// expires returns when the time of a request is over that is queued at now, 0 for never.
func (p *QueuePolicy) expires(m *infer.Meta, now int64) int64 {
	from := now
	if m.Arrived > 0 {
		from = m.Arrived
	}
	if t := p.timeout(m.Timeout); t > 0 && int64(t) < math.MaxInt64-from {
		return from + int64(t)
	}
	return 0
}

// retryAfter makes a number of nanoseconds whole seconds that a client may wait.
func retryAfter(ns int64) time.Duration {
	const most = 60
	return min(max(time.Duration(ns+int64(time.Second)-1).Truncate(time.Second), time.Second), most*time.Second)
}
