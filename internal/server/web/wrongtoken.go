package web

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// wrongTokenEvery is the interval of log lines about wrong tokens: a guesser must show, and must not fill the disk.
const wrongTokenEvery = 10 * time.Second

// wrongTokens logs requests with a wrong token, at most one line each interval. It is safe for concurrent use.
type wrongTokens struct {
	log *slog.Logger // nil: nothing is logged

	mu     sync.Mutex
	next   time.Time // before it nothing is logged; guarded by mu
	hidden int       // requests that were not logged since the last line; guarded by mu
}

// seen handles a request whose token is wrong. The token is not logged: it may be nearly right.
func (t *wrongTokens) seen(r *http.Request, now time.Time) {
	if t.log == nil {
		return
	}
	t.mu.Lock()
	if now.Before(t.next) {
		t.hidden++
		t.mu.Unlock()
		return
	}
	hidden := t.hidden
	t.next, t.hidden = now.Add(wrongTokenEvery), 0
	t.mu.Unlock()
	attrs := []slog.Attr{slog.String("client", r.RemoteAddr), slog.String("path", r.URL.Path)}
	if hidden > 0 {
		attrs = append(attrs, slog.Int("not_logged", hidden))
	}
	t.log.LogAttrs(r.Context(), slog.LevelWarn, "a request to the dashboard has a wrong token", attrs...)
}
