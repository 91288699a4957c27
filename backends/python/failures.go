package python

import (
	"log/slog"
	"sync"
	"time"
)

// How many failures of a model are logged at once, and how often one more. Triton logs each; a model that fails thousands of
// times in a second would fill the disk with one text.
const (
	failureBurst = 20
	failureEvery = time.Second / 5
)

// failures logs what a model raises, and counts what it does not log.
type failures struct {
	mu      sync.Mutex
	left    int       // how many may be logged at once; guarded by mu
	counted time.Time // when left was counted, zero before the first; guarded by mu
	hidden  int       // that were not logged since the last one that was; guarded by mu
}

// admit reports whether one more failure is logged, and how many before it were not.
func (f *failures) admit(now time.Time) (ok bool, hidden int) {
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

// failed logs what the model has raised in an instance.
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
