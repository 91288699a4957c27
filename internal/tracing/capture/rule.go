package capture

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Bounds of a rule.
const (
	defaultSeconds = 600
	maxSeconds     = 86400
	maxPatterns    = 64
	maxPattern     = 512
)

// complete fills in the defaults of a rule and validates it.
func (s *Store) complete(r *inspect.CaptureRule) error {
	for _, n := range []struct {
		name       string
		value      *int64
		other, max int64
	}{
		{"every", &r.Every, 1, 1 << 31},
		{"count", &r.Count, 0, 1 << 31},
		{"seconds", &r.Seconds, defaultSeconds, maxSeconds},
		{"request_bytes", &r.RequestBytes, s.set.RequestBytes, s.set.RequestBytes},
	} {
		if *n.value == 0 {
			*n.value = n.other
		}
		if *n.value < 0 || *n.value > n.max {
			return status.Errorf(status.InvalidArg, "'%s' of a capture is %d, expected 0 to %d", n.name, *n.value, n.max)
		}
	}
	if len(r.RedactTensors)+len(r.RedactModels) > maxPatterns {
		return status.Errorf(status.InvalidArg, "a capture redacts at most %d patterns", maxPatterns)
	}
	for _, p := range slices.Concat([]string{r.Model, r.Request, r.Trace}, r.RedactTensors, r.RedactModels) {
		if len(p) > maxPattern {
			return status.Errorf(status.InvalidArg, "a pattern of a capture has %d bytes, expected at most %d", len(p), maxPattern)
		}
	}
	r.RedactTensors = slices.Concat(s.set.RedactTensors, r.RedactTensors)
	r.RedactModels = slices.Concat(s.set.RedactModels, r.RedactModels)
	return nil
}

// session is a started capture.
type session struct {
	id      uint64
	rule    inspect.CaptureRule
	ends    int64 // on the store's clock
	endsUs  int64
	matched atomic.Uint64

	over bool // guarded by the store's mu
	// Numbers of requests: selected, finished, dropped for newer ones, and rejected for lack of memory.
	selected, taken, dropped, missed uint64 // guarded by the store's mu
}

// matches reports whether a request matches the rule's patterns.
func (s *session) matches(model, request string, id tracing.TraceID) bool {
	r := &s.rule
	return fits(r.Model, model) && fits(r.Request, request) && (r.Trace == "" || matchGlob(r.Trace, id.String()))
}

// due counts a matching request and reports whether it is one in Every.
func (s *session) due() bool {
	return (s.matched.Add(1)-1)%uint64(s.rule.Every) == 0 //nolint:gosec // at least 1
}

// redacts reports whether a tensor's content must not be recorded.
func (s *session) redacts(e *tracing.TensorEdge) bool {
	hit := func(patterns, names []string) bool {
		for _, p := range patterns {
			if slices.ContainsFunc(names, func(name string) bool { return matchGlob(p, name) }) {
				return true
			}
		}
		return false
	}
	return hit(s.rule.RedactTensors, e.Names) || hit(s.rule.RedactTensors, []string{e.Tensor}) || hit(s.rule.RedactModels, e.Models)
}

func fits(pattern, text string) bool { return pattern == "" || matchGlob(pattern, text) }

// matchGlob reports whether text matches a pattern, in which * matches any text and ? any byte. It backtracks to
// the last star only, so that its time is at most the product of the lengths.
func matchGlob(pattern, text string) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
