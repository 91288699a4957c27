package guarded

import (
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// breaker is a circuit breaker. It is closed while attempts may be made, open while none may, and half-open while one probe decides. It is
// safe for concurrent use.
type breaker struct {
	rules config.Breaker
	step  string

	mu      sync.Mutex
	row     int    // failures since the last success, guarded by mu
	results []bool // the last executions, true for a failure; guarded by mu
	next    int    // in results, guarded by mu
	failed  int    // failures in results, guarded by mu
	open    bool   // guarded by mu
	until   int64  // when the next probe may start, on the clock of telemetry.Now; guarded by mu
	probing bool   // guarded by mu
	last    string // the text of the last failure, guarded by mu
}

func newBreaker(rules *config.Breaker, step string) *breaker {
	if rules == nil {
		return nil
	}
	return &breaker{rules: *rules, step: step}
}

// outcome is what an attempt says about the step.
type outcome uint8

const (
	worked  outcome = iota // it responded; also with an error that is the request's own
	failed                 // the step is at fault
	neither                // the request was cancelled
)

// allow returns whether an attempt may be made at now, and whether it is a probe. If not, it returns the error.
func (b *breaker) allow(now int64) (probe bool, err error) {
	if b == nil {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return false, nil
	}
	if b.probing || now < b.until {
		wait := max(time.Duration(b.until-now), time.Millisecond).Round(time.Millisecond)
		return false, &status.Error{Code: status.Unavailable, Reason: status.CircuitOpen, RetryAfter: wait, Msg: "the circuit breaker of step '" + b.step +
			"' is open, the next probe is in " + wait.String() + "; the last failure was: " + b.last}
	}
	b.probing = true
	return true, nil
}

// record notes the result of an attempt. Those that began before the breaker opened do not count.
func (b *breaker) record(now int64, o outcome, probe bool, why string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if o == failed {
		b.last = why
	}
	if b.open {
		if probe {
			b.probed(now, o)
		}
		return
	}
	if o != neither && b.trips(o == failed) {
		b.open, b.until = true, now+int64(b.rules.ProbeAfter)
	}
}

// probed ends a probe: the breaker closes after a success, and stays open for another period after a failure.
func (b *breaker) probed(now int64, o outcome) {
	b.probing = false
	switch o {
	case worked:
		b.open, b.row, b.failed, b.next, b.results = false, 0, 0, 0, b.results[:0]
	case failed:
		b.until = now + int64(b.rules.ProbeAfter)
	case neither: // the next attempt is the probe
	}
}

// trips notes a result and reports whether there have been too many failures.
func (b *breaker) trips(failure bool) bool {
	if b.rules.Window == 0 {
		if b.row++; !failure {
			b.row = 0
		}
		return b.row >= b.rules.Failures
	}
	if len(b.results) < b.rules.Window {
		b.results = append(b.results, failure)
	} else {
		if b.results[b.next] {
			b.failed--
		}
		b.results[b.next] = failure
		b.next = (b.next + 1) % b.rules.Window
	}
	if failure {
		b.failed++
	}
	return len(b.results) == b.rules.Window && float64(b.failed) >= b.rules.Share*float64(b.rules.Window)
}
