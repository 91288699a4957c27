package direct

import (
	"sync"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// held has the background tasks of an Inline that wait because online requests are served. They execute on a goroutine of their own, one
// by one, at the pace of scheduler.Background: on the goroutine that enqueues them, an online request could wait for them.
type held struct {
	workers *scheduler.Workers
	process *scheduler.Background // nil for a model without instances

	mu    sync.Mutex
	list  scheduler.TaskList // guarded by mu
	armed bool               // the timer runs, or its goroutine; guarded by mu
	flush bool               // no task is held any more; guarded by mu
}

// hold keeps the background tasks of a list and returns the others, which stay sealed.
func (i *Inline) hold(list scheduler.TaskList) (online scheduler.TaskList) {
	first := list.Head
	for first != nil && !first.Meta.Background {
		first = first.Next()
	}
	if first == nil {
		return list
	}
	sealed := list.Sealed()
	h := &i.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flush {
		return list
	}
	for w := list.Pop(); w != nil; w = list.Pop() {
		if w.Meta.Background {
			h.list.Push(w)
		} else {
			online.Push(w)
		}
	}
	if sealed {
		online.Seal()
	}
	if !h.armed {
		h.armed = true
		time.AfterFunc(time.Millisecond, i.runHeld)
	}
	return online
}

// runHeld executes held tasks as long as it may, and is called again for the rest.
func (i *Inline) runHeld() {
	h := &i.held
	t := scheduler.NewRunLoop(h.workers)
	for {
		t.Tick(telemetry.Now())
		h.mu.Lock()
		if h.list.Len() == 0 {
			h.armed = false
			h.mu.Unlock()
			return
		}
		begin, quiet := t.Now(), h.flush || h.process.Quiet(t.Now())
		if !quiet {
			if ok, wait := h.process.Pace(begin); !ok {
				h.mu.Unlock()
				time.AfterFunc(wait, i.runHeld)
				return
			}
		}
		var one scheduler.TaskList
		one.Push(h.list.Pop())
		h.mu.Unlock()
		i.RunInline(one, t)
		if !quiet {
			h.process.Paced(begin, telemetry.Now())
		}
		t.Dispatch()
		t.Finish()
	}
}

// Flush implements scheduler.Flusher: background tasks execute now, and later ones at once.
func (i *Inline) Flush() {
	h := &i.held
	h.mu.Lock()
	h.flush = true
	start := !h.armed && h.list.Len() > 0
	h.armed = h.armed || start
	h.mu.Unlock()
	if start {
		go i.runHeld()
	}
}
