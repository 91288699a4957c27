package bind

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
)

// TestWatchChecksRarely checks, on a virtual clock, that an instance of short runs is checked rarely, and that a long run among them is
// still stopped when it is cancelled: late the first time, and at the usual interval after that.
func TestWatchChecksRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stopped time.Time
		w := Watch{Stop: func() { stopped = time.Now() }}
		sleep := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		b, seen := &backends.Batch{}, map[time.Duration]bool{}
		for range 1000 {
			w.Begin(t.Context(), b)
			w.End()
			w.mu.Lock()
			seen[w.every] = true
			w.mu.Unlock()
			sleep(2*time.Millisecond + time.Microsecond)
		}
		if !seen[checkRarely] || len(seen) != 6 {
			t.Errorf("the interval was one of %v; expected it to double up to %v", seen, checkRarely)
		}
		for _, most := range []time.Duration{checkRarely + checkEvery, checkEvery} {
			ctx, leave := context.WithCancel(t.Context())
			w.Begin(ctx, b)
			if most == checkEvery {
				sleep(5 * checkEvery)
			}
			leave()
			left := time.Now()
			sleep(most)
			was := w.End()
			if late := stopped.Sub(left); late < 0 || late > most || !was {
				t.Errorf("a cancelled run was stopped after %v, expected at most %v", late, most)
			}
		}
		sleep(time.Second) // the timer stops without runs, or the bubble would not end
	})
}
