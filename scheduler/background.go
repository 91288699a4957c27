package scheduler

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Background decides when background requests (infer.Meta.Background) may execute, so that online requests do not wait for them. There is
// one for all models of a process, see Workers.Background: models share its processors.
//
// Background tasks ride along in free places of batches of online tasks at any time. Batches of their own start while the process is
// quiet: no online request is in flight, and none was for longer than nearly all gaps between online requests. Beside online requests they
// start only where there are four processors for each, and never at a model's last free instance.
//
// The window after which the process counts as quiet is learned: it doubles with each gap between online requests that was longer, and
// decreases by 1/512 with each that was not. So about one online request in 350 finds a background batch in execution, which its p99 does
// not notice. For example, with 50 random requests per second the window becomes about 120 ms.
//
// Online requests are counted only while there are background ones, and for a minute after: without them an online request costs one load.
// It is safe for concurrent use. The zero value is ready to use.
type Background struct {
	watching atomic.Bool
	requests atomic.Int64 // background requests in flight
	seen     atomic.Int64 // when the last of them began or ended
	online   atomic.Int64 // online requests in flight
	came     atomic.Int64 // when the last of them began, 0 for never
	last     atomic.Int64 // when the last of them began or ended, 0 for never
	window   atomic.Int64 // ns, 0 for firstWindow
	batches  atomic.Int64 // batches of background tasks alone that execute
	pause    atomic.Int64 // until when inline background tasks wait, see Pace
}

const (
	firstWindow = 200 * time.Millisecond
	minWindow   = 20 * time.Millisecond
	// maxWindow bounds how long background requests wait after the last online one. Where online requests are rarer than that, each may
	// wait for one background batch.
	maxWindow = 2 * time.Second
	// windowDecay is the power of two by which the window is divided to decrease it.
	windowDecay = 9
	// watchTime is how long online requests are counted after the last background request.
	watchTime = time.Minute
	// expectTime is how long after an online request another one is expected.
	expectTime = 10 * time.Second
	// processorsEach is how many processors there are for each background batch beside online requests.
	processorsEach = 4
	// minWait is how soon a scheduler asks again, at the least.
	minWait = 5 * time.Millisecond
	// paceShare is the part of all processors that inline background tasks and slices may take beside online requests. Each of their
	// slices is in the way of few online requests then, fewer than p99 notices, also on two processors.
	paceShare = 800
)

// Watching reports whether there are, or were lately, background requests.
//
// hot: one load.
func (b *Background) Watching() bool { return b.watching.Load() }

// Begin notes that a background request begins at now, on the clock of telemetry.Now. End must follow. The first one waits for a
// window, because the online requests before it were not counted.
func (b *Background) Begin(now int64) {
	b.requests.Add(1)
	b.seen.Store(now)
	if !b.watching.Swap(true) {
		b.last.Store(now)
	}
}

// End notes the end of a background request.
func (b *Background) End(now int64) {
	b.seen.Store(now)
	b.requests.Add(-1)
}

// Arrive notes an online request that arrives at now. Leave must follow. Call it while Watching is true.
func (b *Background) Arrive(now int64) {
	n, last := b.online.Add(1), b.last.Swap(now)
	b.came.Store(now)
	if last != 0 {
		b.learn(now-last, n == 1)
	}
	if b.requests.Load() == 0 && now-b.seen.Load() > int64(watchTime) {
		b.watching.Store(false)
		if b.requests.Load() > 0 { // it began in between
			b.watching.Store(true)
		}
	}
}

// learn adapts the window to a gap between online requests; idle reports that none was in flight meanwhile.
func (b *Background) learn(gap int64, idle bool) {
	w := b.quietAfter()
	if idle && gap > w {
		w = min(2*w, int64(maxWindow))
	} else {
		w = max(w-w>>windowDecay, int64(minWindow))
	}
	b.window.Store(w)
}

// Leave notes the end of an online request that Arrive has noted.
func (b *Background) Leave(now int64) {
	b.last.Store(now)
	b.online.Add(-1)
}

func (b *Background) quietAfter() int64 {
	if w := b.window.Load(); w > 0 {
		return w
	}
	return int64(firstWindow)
}

// Quiet reports whether background tasks may execute as if there were no online requests.
func (b *Background) Quiet(now int64) bool {
	if b.online.Load() > 0 {
		return false
	}
	last := b.last.Load()
	return last == 0 || now-last > b.quietAfter()
}

// Expecting reports whether an online request is to be expected soon, because there was one lately. One that comes while
// the process is quiet waits for the background work that has begun, so that must be short then.
func (b *Background) Expecting(now int64) bool {
	came := b.came.Load()
	return came != 0 && now-came < int64(expectTime)
}

// Wait returns when to ask again whether the process is quiet.
func (b *Background) Wait(now int64) time.Duration {
	w := b.quietAfter()
	if b.online.Load() > 0 {
		return max(time.Duration(w/2), minWait)
	}
	return max(time.Duration(b.last.Load()+w-now), minWait)
}

// Start asks for the execution of a batch of background tasks alone. spare reports that the model keeps a free instance. True: the batch
// may execute, and Done must follow. beside reports that there are online requests: a goroutine of theirs must not execute the batch.
func (b *Background) Start(now int64, spare bool) (ok, beside bool) {
	if b.Quiet(now) {
		b.batches.Add(1)
		return true, false
	}
	if !spare {
		return false, true
	}
	if b.batches.Add(1) > int64(runtime.GOMAXPROCS(0)/processorsEach) {
		b.batches.Add(-1)
		return false, true
	}
	return true, true
}

// Force is Start for a batch that must execute now, for example because its model is unloaded.
func (b *Background) Force() { b.batches.Add(1) }

// Done ends the execution of a batch.
func (b *Background) Done() { b.batches.Add(-1) }

// Pace asks for the execution of one inline background task. If ok is false, ask again after wait. Otherwise Paced must follow.
// While there are online requests, inline background tasks take an 800th of the processors, for all models together.
func (b *Background) Pace(now int64) (ok bool, wait time.Duration) {
	if b.Quiet(now) {
		return true, 0
	}
	until := b.pause.Load()
	if now < until {
		return false, max(time.Duration(until-now), time.Millisecond)
	}
	if !b.pause.CompareAndSwap(until, now+int64(time.Second)) { // another one executes until Paced
		return false, time.Millisecond
	}
	return true, 0
}

// Paced ends an execution that Pace allowed, from begin to now.
func (b *Background) Paced(begin, now int64) {
	b.pause.Store(now + (now-begin)*int64(max(paceShare/runtime.GOMAXPROCS(0)-1, 1)))
}

// Background returns what decides when background requests execute in the process of the workers; a new one without workers.
func (p *Workers) Background() *Background {
	if p == nil {
		return new(Background)
	}
	return &p.background
}
