package backends

import (
	"fmt"
	"time"
)

// Degrader is a Model whose instances execute in processes that may end while others serve. For example, the process of one of three
// instances was killed, and another one is started.
type Degrader interface {
	Model
	// Degraded returns how many instances have no process, why, and since when; "" if all have one. A time that is not known is zero. It
	// may be called while instances execute, and must not wait for them.
	Degraded() (reason string, since time.Time)
}

// Outages are the instances of a Degrader that have no process. The zero value has none.
type Outages struct {
	n     int
	why   string
	since time.Time
}

// Add adds an instance, unless why is empty.
func (o *Outages) Add(why string, since time.Time) {
	if why == "" {
		return
	}
	if o.n++; o.n == 1 || since.Before(o.since) {
		o.why, o.since = why, since
	}
}

// Text returns what Degraded of a model with that many instances returns. The cause is that of the first outage.
func (o *Outages) Text(instances int) (reason string, since time.Time) {
	if o.n == 0 {
		return "", time.Time{}
	}
	return fmt.Sprintf("%d of %d instances cannot serve: %s", o.n, instances, o.why), o.since
}

// Recycler is an Instance that executes in a process of its own, which can be ended without harm to others. For example, an
// instance of the Python backend. Its methods may be called at any time, concurrently with Execute, and must not wait.
type Recycler interface {
	Instance
	// Alive reports whether there is a process that can execute. For example, there is none while another one is started.
	Alive() bool
	// Recycle ends the process. The requests that it executes fail with the text of why, Unavailable and a time to retry, and the next
	// request gets a new process. It returns false, and does nothing, when there is no process that is alive.
	Recycle(why error) bool
	// Resident returns the resident memory in bytes of the process and its children; 0 without a process.
	Resident() int64
}

// RecyclerOf returns the instance as a Recycler, or nil. It looks through wrappers as StreamOf does.
func RecyclerOf(inst Instance) Recycler {
	for {
		if r, ok := inst.(Recycler); ok {
			return r
		}
		w, ok := inst.(interface{ Unwrap() Instance })
		if !ok {
			return nil
		}
		inst = w.Unwrap()
	}
}
