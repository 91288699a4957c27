package identity

import (
	"log/slog"
	"sync"
	"time"
)

// budget bounds how often something is written: burst times at once, then once in every interval.
type budget struct {
	burst    int
	interval time.Duration

	mu   sync.Mutex
	left float64   // guarded by mu
	last time.Time // guarded by mu
	lost uint64    // what was not written since; guarded by mu
}

// take reports whether one more may be written now, and how many were not since the last one.
func (b *budget) take(now time.Time) (lost uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.left = float64(b.burst)
	} else {
		b.left = min(float64(b.burst), b.left+float64(max(0, now.Sub(b.last)))/float64(b.interval)) // a clock may be set back
	}
	b.last = now
	if b.left < 1 {
		b.lost++
		return 0, false
	}
	b.left--
	lost, b.lost = b.lost, 0
	return lost, true
}

// Bounds of what refused requests write: to the log, and to the audit log.
const (
	noticeBurst, noticeEvery = 10, 10 * time.Second
	auditBurst, auditEvery   = 100, time.Second
)

// notice logs a refused request, with a bound.
func (g *Guard) notice(e *Event, reason string) {
	lost, ok := g.notices.take(g.set.Now())
	if !ok {
		return
	}
	g.set.Log.Warn("a request was refused", slog.String("from", e.From), slog.String("who", e.Who), slog.String("action", e.Action),
		slog.String("reason", reason), slog.Uint64("not_logged_before", lost))
}
