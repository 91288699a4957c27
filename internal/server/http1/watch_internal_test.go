package http1

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSweepsBecomeRare checks the interval of the sweeps on a virtual clock: there are few while all requests are short, a long request
// is found within the longest interval and the time after which a request counts as long, and sweeps are frequent again after it.
func TestSweepsBecomeRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newWatchers()
		w := &watcher{c: &conn{}, all: all, shard: &all.shards[0], over: make(chan struct{}, 1)}
		every := func() time.Duration { return time.Duration(all.every.Load()) }
		sleep := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		began := time.Now()
		var sweeps []time.Duration // when the interval changed
		for last := every(); time.Since(began) < 2*time.Second; {
			w.begin(time.Now())
			sleep(time.Millisecond)
			w.end()
			sleep(time.Millisecond)
			if every() != last {
				last = every()
				sweeps = append(sweeps, time.Since(began).Round(10*time.Millisecond))
			}
		}
		if len(sweeps) != 4 || every() != watchRarely {
			t.Errorf("the interval is %v, it changed after %v; expected %v after four sweeps", every(), sweeps, watchRarely)
		}
		w.begin(time.Now())
		for held := time.Duration(0); every() != watchAfter; held += time.Millisecond {
			if held > watchRarely+watchAfter {
				t.Fatalf("a request that runs for %v was not found", held)
			}
			sleep(time.Millisecond)
		}
		w.end()
		sleep(time.Second) // the timer stops without requests, or the bubble would not end
		if all.on.Load() {
			t.Error("the timer runs without requests")
		}
	})
}
