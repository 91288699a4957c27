package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/client"
)

// The ways in which a request may end. The last ones are faults of the server.
const (
	right    = "right"
	again    = "retry"    // refused or lost, and the error says that it may be sent again: 503, 429, UNAVAILABLE, RESOURCE_EXHAUSTED
	final    = "final"    // an error that says that the same request will fail again, for a reason that an event explains
	worker   = "worker"   // the Python worker of a stream died after some of its responses: the text says that they would come again
	deadline = "deadline" // the client's own deadline
	wrong    = "WRONG"    // a response that is not the right one
	unclear  = "UNCLEAR"  // an error that nothing explains
	lost     = "LOST"     // no response: the connection broke
	hung     = "HUNG"     // no response in patience
)

// outcomes lists them, faults last.
var outcomes = []string{right, again, final, worker, deadline, wrong, unclear, lost, hung}

// isFault reports whether an outcome is a fault of the server.
func isFault(of string) bool { return of == strings.ToUpper(of) }

// patience is the time after which a request without a response hangs. Events stall the server for much less.
const patience = 30 * time.Second

// wrongError is a response that is not the right one.
type wrongError struct{ err error }

// Error says what differs.
func (w *wrongError) Error() string { return w.err.Error() }

func differs(format string, args ...any) error { return &wrongError{fmt.Errorf(format, args...)} }

var (
	// explained are the texts of final errors that events cause.
	explained = regexp.MustCompile(`(?i)unknown model|is not ready|not found|no version is available|no available versions|unload|` +
		`unable to find shared memory region|shared memory region .* (?:is not registered|doesn't exist)|must specify the START flag|file too large|no space left|unexpected sequence|inference request for sequence`)
	// ownDeadline are the texts on streams of requests that were ended by their deadline, or refused because of it.
	ownDeadline = regexp.MustCompile(`deadline expired|deadline cannot be met`)
	// died are the texts of errors of workers.
	died = regexp.MustCompile(`exited: .*; it had sent \d+ responses, which come again`)
	// retried are the texts on streams, whose errors have no code.
	retried = regexp.MustCompile(`(?i)send the request again|unavailable|exceeds maximum queue size|try again|too many|in flight`)
)

// judge returns how a request with the given error ended. own says that the client's deadline was meant to end it.
func judge(ctx context.Context, err error, own bool) string {
	switch w, e := (*wrongError)(nil), (*client.Error)(nil); {
	case err == nil:
		return right
	case errors.As(err, &w):
		return wrong
	case ctx.Err() != nil && own:
		return deadline
	case ctx.Err() != nil:
		return hung
	case errors.As(err, &e):
		return judgeRefusal(e, own)
	case strings.Contains(err.Error(), "broken stream"):
		return again
	default:
		return lost
	}
}

func judgeRefusal(e *client.Error, own bool) string {
	code, _, _ := strings.Cut(e.Status, " ")
	switch {
	case code == "503" || code == "429" || code == "Unavailable" || code == "ResourceExhausted":
		return again
	case own && (code == "DeadlineExceeded" || code == "Canceled" || ownDeadline.MatchString(e.Text)):
		return deadline
	case died.MatchString(e.Text):
		return worker
	case explained.MatchString(e.Text):
		return final
	case code == "error" && retried.MatchString(e.Text):
		return again
	}
	return unclear
}

// tally counts outcomes. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by flow and outcome; guarded by mu
	texts  map[string]int            // errors, with numbers cut out; guarded by mu
	first  []string                  // the first faults; guarded by mu
	slow   time.Duration             // the longest time to any response; guarded by mu
}

func newTally() *tally { return &tally{counts: map[string]map[string]int{}, texts: map[string]int{}} }

var digits = regexp.MustCompile(`0x[0-9a-f]+|\d+`)

const (
	textLength = 160 // the most bytes of an error that are counted
	manyFaults = 40  // the most that are listed
)

// add counts a request.
func (t *tally) add(flow, outcome string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[flow] == nil {
		t.counts[flow] = map[string]int{}
	}
	t.counts[flow][outcome]++
	if outcome != deadline && outcome != hung {
		t.slow = max(t.slow, took)
	}
	if err == nil {
		return
	}
	text := digits.ReplaceAllString(err.Error(), "N")
	t.texts[outcome+": "+text[:min(len(text), textLength)]]++
	if isFault(outcome) && len(t.first) < manyFaults {
		line := fmt.Sprintf("%s %s %s after %s: %v", time.Now().UTC().Format("15:04:05.000"), outcome, flow, took.Round(time.Millisecond), err)
		t.first = append(t.first, line)
		logf("%s", line)
	}
}

// totals sums the outcomes of all flows.
func (t *tally) totals() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]int{}
	for _, of := range t.counts {
		for k, n := range of {
			all[k] += n
		}
	}
	return all
}

// table prints the counts.
func (t *tally) table() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s", "requests")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%10s", o)
	}
	sum := map[string]int{}
	line := func(name string, of map[string]int) {
		fmt.Fprintf(&b, "\n%-22s", name)
		for _, o := range outcomes {
			fmt.Fprintf(&b, "%10d", of[o])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.counts)) {
		line(name, t.counts[name])
		for k, n := range t.counts[name] {
			sum[k] += n
		}
	}
	line("all", sum)
	return b.String() + "\n"
}
