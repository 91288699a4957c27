package tracing

import (
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// quota limits a rate to a number per stretch of time. Above the limit it reads the clock only once in clockEveryN
// calls.
type quota struct {
	each  int64 // per stretch, 0 for no limit
	left  atomic.Int64
	until atomic.Int64 // end of the stretch
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

// maxRetained limits the requests whose clients ask for their traces to be retained: the size of a burst, and the
// rate per second. People send few; the limit protects the store.
const maxRetained = 20

// allowance enforces maxRetained. A quota would be too coarse: above its limit it rarely reads the clock.
type allowance struct{ due atomic.Int64 }

// take reports whether one more is allowed at time now.
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

// maxRefusedText bounds the client's texts in the record of a refused request, in bytes.
const maxRefusedText = 256

// RecordRefusal sends the sinks the record of a request that failed before a model accepted it, at the end of
// o.Read. For example, its body could not be decoded, or it names an unknown model. Version is 0 if it is unknown.
// The record has no RequestStart.
func (t *Tracer) RecordRefusal(model string, version int64, id string, o *Origin, err error) {
	if t == nil || o.Read.Ended == 0 || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, refusedText(model), version, refusedText(id))
	x.rec.Began, x.rec.BeganAt = t.epoch+o.Read.Began, o.Read.Began
	x.SetOrigin(o)
	x.Fail(err)
	x.End()
}

// refusedText returns a client's text for a record: shortened, and valid UTF-8.
func refusedText(s string) string {
	if len(s) > maxRefusedText {
		s = s[:maxRefusedText]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// RecordFailure sends the sinks the record of a failed request that was not sampled. It has no steps. Started is a
// time of telemetry.Now.
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
