package tracing

import (
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// A quota bounds a rate: so many of each stretch of time. Where there are more, few of
// them look at the clock.
type quota struct {
	each  int64 // per stretch, 0 for no bound
	left  atomic.Int64
	until atomic.Int64 // the end of the stretch
}

const (
	stretch     = int64(10_000_000) // ns
	stretches   = 100               // in a second
	clockEveryN = 64
)

func (q *quota) open(perSecond int) {
	if perSecond > 0 {
		q.each = int64(max(perSecond/stretches, 1))
		q.left.Store(q.each)
	}
}

// take reports whether one more is within the quota.
//
// hot: no lock, no allocation.
func (q *quota) take() bool {
	if q.each == 0 {
		return true
	}
	left := q.left.Add(-1)
	if left >= 0 {
		return true
	}
	if left%clockEveryN != -1 {
		return false
	}
	now, until := telemetry.Now(), q.until.Load()
	if now < until || !q.until.CompareAndSwap(until, now+stretch) {
		return false
	}
	q.left.Store(q.each - 1)
	return true
}

// maxRetained bounds the requests whose clients ask for their traces to be stored: so many
// at once, and as many in each second after. People send few, and nobody fills the store.
const maxRetained = 20

// An allowance counts those requests. A quota would not do: it looks at the clock for one
// in many.
type allowance struct{ due atomic.Int64 }

// take reports whether it may happen at now once more.
func (a *allowance) take(now int64) bool {
	const second, each = int64(1_000_000_000), int64(1_000_000_000) / maxRetained
	for {
		at := a.due.Load()
		due := max(at, now) + each
		if due > now+second {
			return false
		}
		if a.due.CompareAndSwap(at, due) {
			return true
		}
	}
}

// maxAsked bounds the model's name of a request that no model took.
const maxAsked = 256

// Refused has the sinks see a request that failed before a model had it, when o.Read
// ended: what could not be decoded, or names no model. Version is 0 where none is known.
// It has no RequestStart: it was received and no more.
func (t *Tracer) RecordRefusal(model string, version int64, id string, o *Origin, err error) {
	if t == nil || o.Read.Ended == 0 || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, asked(model), version, asked(id))
	x.rec.Began, x.rec.BeganAt = t.epoch+o.Read.Began, o.Read.Began
	x.SetOrigin(o)
	x.Fail(err)
	x.End()
}

// asked is a text of the client's as a trace keeps it: neither long nor broken.
func asked(s string) string {
	if len(s) > maxAsked {
		s = s[:maxAsked]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// Missed has the sinks see a request that failed untraced, without its steps: it began
// at started, a time of telemetry.Now.
func (t *Tracer) RecordFailure(model string, version int64, id string, started int64, o *Origin, err error) {
	if t == nil || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, model, version, id)
	x.SetOrigin(o)
	x.Stamp(RequestStart, started)
	x.Fail(err)
	x.Stamp(RequestEnd, telemetry.Now())
	x.End()
}
