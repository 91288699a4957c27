package crash

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/subprocess"
)

// Process is a process that a Keeper keeps.
type Process interface {
	// Child returns the child itself.
	Child() *subprocess.Process
	// Use keeps the memory of the process: see subprocess.Range.
	Use() bool
	// Close ends the process, and gives up its memory. It is called once.
	Close()
}

// KeeperSettings are the parameters of Keep.
type KeeperSettings[P Process] struct {
	// Model is the name of the model, for errors.
	Model string
	// What names the process in texts, for example "the process of an isolated instance".
	What string
	Log  *slog.Logger
	// Start starts a process and calls publish with it, after which requests use it. It gives up when ctx is done.
	Start func(ctx context.Context, publish func(P)) error
	// Restarting is called before each start.
	Restarting func()

	_ struct{}
}

// Keeper keeps a process running: it starts another one whenever it ends, with the delays of Delay, until it is closed. It is safe for concurrent
// use.
//
// Lifecycle:
//
//  1. Keep takes a process that runs.
//  2. Each execution takes the process by Current, which waits for one, and releases it afterwards. It calls Succeeded, or Lost when the process
//     has ended meanwhile.
//  3. Close ends the process and waits for that.
type Keeper[P Process] struct {
	set  KeeperSettings[P]
	now  atomic.Pointer[P] // nil while there is none
	ends atomic.Int32      // processes that ended since the last batch that succeeded

	life context.Context //nolint:containedctx // cancelled by Close
	stop context.CancelFunc
	done sync.WaitGroup // of keep

	mu      sync.Mutex
	changed chan struct{} // closed when the fields below or now change; guarded by mu
	next    time.Time     // the next start, zero while there is a process; guarded by mu
	why     string        // the last process ended; guarded by mu
	since   time.Time     // there is no process, zero while there is one; guarded by mu
}

// Keep keeps a process that was started.
func Keep[P Process](set KeeperSettings[P], first P) *Keeper[P] {
	k := &Keeper[P]{set: set, changed: make(chan struct{})}
	k.life, k.stop = context.WithCancel(context.Background())
	k.now.Store(&first)
	k.done.Go(func() { k.keep(first) })
	return k
}

// Close ends the process.
func (k *Keeper[P]) Close() {
	k.stop()
	k.done.Wait()
}

// Closed reports whether Close was called.
func (k *Keeper[P]) Closed() bool { return k.life.Err() != nil }

func (k *Keeper[P]) keep(p P) {
	for {
		child := p.Child()
		select {
		case <-child.Ended:
		case <-k.life.Done():
			p.Close()
			return
		}
		ends := k.ends.Add(1)
		//nolint:sloglint // the name of the process is the caller's
		k.set.Log.ErrorContext(k.life, k.set.What+" ended", slog.Int("pid", child.PID), slog.String("reason", status.Line(child.Why)))
		k.lack(ends, child.Why)
		p.Close()
		var started bool
		if p, started = k.again(ends); !started {
			return
		}
	}
}

// again starts a process, as often as it takes. It returns false when the keeper is closed.
func (k *Keeper[P]) again(ends int32) (p P, started bool) {
	for {
		select {
		case <-time.After(Delay(ends)):
		case <-k.life.Done():
			return p, false
		}
		k.set.Restarting()
		err := k.set.Start(k.life, func(made P) {
			p = made
			k.publish(&p, time.Time{}, "")
		})
		if err == nil {
			return p, true
		}
		if k.life.Err() != nil {
			return p, false
		}
		ends = k.ends.Add(1)
		//nolint:sloglint // the name of the process is the caller's
		k.set.Log.ErrorContext(k.life, k.set.What+" cannot be started again", slog.String("reason", status.Text(err)))
		k.lack(ends, status.Text(err))
	}
}

// lack notes that there is no process.
func (k *Keeper[P]) lack(ends int32, why string) { k.publish(nil, time.Now().Add(Delay(ends)), why) }

func (k *Keeper[P]) publish(p *P, next time.Time, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Store(p)
	k.next, k.why = next, why
	switch {
	case p != nil:
		k.since = time.Time{}
	case k.since.IsZero():
		k.since = time.Now()
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// Now returns the process if there is one that is alive. The caller must not use its memory: see Current.
func (k *Keeper[P]) Now() (p P, alive bool) {
	if at := k.now.Load(); at != nil && (*at).Child().Alive() {
		return *at, true
	}
	return p, false
}

// Current returns the process, for which it waits. The caller must release its memory.
//
// hot: two loads.
func (k *Keeper[P]) Current(ctx context.Context) (p P, err error) {
	for {
		if p, alive := k.Now(); alive && p.Use() {
			return p, nil
		}
		k.mu.Lock()
		changed, next, why := k.changed, k.next, k.why
		_, alive := k.Now() // changes are under mu: one that is published later closes changed
		k.mu.Unlock()
		if alive {
			continue
		}
		if left := time.Until(next); left > Patience {
			return p, Refusal(k.set.Model, left, why)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return p, status.ErrCancelled
		case <-k.life.Done():
			return p, status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", k.set.Model)
		}
	}
}

// Down returns why there is no process, and since when: zero if that is not known yet. It is empty if there is one.
func (k *Keeper[P]) Down() (why string, since time.Time) {
	at := k.now.Load()
	if at != nil && (*at).Child().Alive() {
		return "", time.Time{}
	}
	k.mu.Lock()
	why, since = k.why, k.since
	k.mu.Unlock()
	if at != nil { // nothing has noticed its end yet
		why = (*at).Child().Ending()
	}
	return k.set.What + " is started again, it ended: " + status.Line(why), since
}

// Alive reports whether there is a process.
func (k *Keeper[P]) Alive() bool {
	_, alive := k.Now()
	return alive
}

// Recycle kills the process, and returns whether there was one. What it executes fails with why.
func (k *Keeper[P]) Recycle(why error) bool {
	p, alive := k.Now()
	return alive && p.Child().Recycle(why)
}

// Resident returns the memory of the process in bytes, without what it shares, or 0.
func (k *Keeper[P]) Resident() int64 {
	if at := k.now.Load(); at != nil {
		return (*at).Child().Resident()
	}
	return 0
}

// Succeeded notes that the process has executed a batch.
//
// hot: a load.
func (k *Keeper[P]) Succeeded() {
	if k.ends.Load() != 0 {
		k.ends.Store(0)
	}
}

// Lost returns the error of a batch whose process p has ended, as text says. times is what Requests.Ended has returned for it.
func (k *Keeper[P]) Lost(p P, times int, text string) error {
	if why := p.Child().Recycled(); why != nil {
		return &status.Error{
			Code: status.Unavailable, Reason: status.InstanceLost, RetryAfter: cmp.Or(status.RetryAfter(why), time.Second),
			Msg: status.Text(why) + "; send the request again",
		}
	}
	return Lost(text, time.Second, min(times, int(k.ends.Load())+1)) // this end may not be counted yet
}
