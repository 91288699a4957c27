package python

import (
	"log/slog"
	"sync"
	"time"
)

// The rate limit of logged failures of a model: a burst, and the interval of further ones. Triton logs every failure; a model that
// fails thousands of times per second would fill the disk.
const (
	failureBurst = 20
	failureEvery = time.Second / 5
)

// failureLog limits the rate at which failures of a model are logged, and counts the others. It is safe for concurrent use.
type failureLog struct {
	mu      sync.Mutex
	left    int       // failures that may be logged now; guarded by mu
	counted time.Time // time of the last update of left, zero before the first; guarded by mu
	hidden  int       // failures that were not logged since the last one that was; guarded by mu
}

// admit reports whether to log a failure, and how many before it were not logged.
func (f *failureLog) admit(now time.Time) (ok bool, hidden int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counted.IsZero() {
		f.left, f.counted = failureBurst, now
	}
	if n := int(now.Sub(f.counted) / failureEvery); n > 0 {
		f.left = min(f.left+n, failureBurst)
		f.counted = f.counted.Add(time.Duration(n) * failureEvery)
	}
	if f.left == 0 {
		f.hidden++
		return false, 0
	}
	f.left--
	hidden, f.hidden = f.hidden, 0
	return true, hidden
}

// failed logs an exception of the model in an instance.
func (m *model) failed(instance, text string) {
	ok, hidden := m.failures.admit(time.Now())
	if !ok {
		return
	}
	attrs := []any{slog.String("instance", instance), slog.String("error", text)}
	if hidden > 0 {
		attrs = append(attrs, slog.Int("not_logged", hidden))
	}
	m.log.Error("a python model failed", attrs...)
}
