package scheduler

import "github.com/tutti-server/tutti/backends"

// Gate is what an instance passes before it executes a batch: a rate limiter, a bound
// on how much a device runs at a time. One instance has one gate. No gate at all, a
// nil one, costs nothing.
type Limiter interface {
	// Enter asks for one execution. true: the instance is in and Leave ends it. false:
	// it is let in later, which resume tells once; it is in from then on, and must
	// Leave even when there is nothing left to execute. resume is the same function
	// each time, must not block and may be called before Enter returns. Nobody asks
	// again before Leave.
	Acquire(resume func()) bool
	// Leave ends the execution.
	Release()
}

// Rated is a Gate that shares executions out.
type Rated interface {
	Limiter
	// Rank orders the free instances of a model: the one with the lowest goes first.
	Rank() int64
	// Again is Leave and Enter at once, for an instance that has more to execute.
	Again() bool
}

// pass is how an instance stands with its gate.
type pass uint8

const (
	outside pass = iota
	waiting      // asked, and not let in yet
	inside
)

// Door is how an instance stands with its gate. A zero Door has no gate and is always
// open. Its owner's lock guards it.
type Lease struct {
	gate   Limiter
	rated  Rated // the gate, when it is one
	resume func()
	pass   pass
}

// NewDoor returns the door of a gate, which may be nil; resume is called once the
// instance is let in that was refused, and has to call Let with the lock held.
func NewLease(gate Limiter, resume func()) Lease {
	d := Lease{gate: gate, resume: resume}
	d.rated, _ = gate.(Rated)
	return d
}

// Enter reports whether the instance is in; if not, it asks unless it has.
//
// hot: no allocation.
func (d *Lease) Acquire() bool {
	if d.gate == nil {
		return true
	}
	if d.pass == outside {
		d.pass = waiting
		if d.gate.Acquire(d.resume) {
			d.pass = inside
		}
	}
	return d.pass == inside
}

// Let notes that the gate has let the instance in.
func (d *Lease) Let() { d.pass = inside }

// Waits reports whether the instance has asked and is not in yet.
func (d *Lease) Waiting() bool { return d.pass == waiting }

// Leave has the instance leave if it is in; more says that it has more to execute.
func (d *Lease) Release(more bool) {
	switch {
	case d.pass != inside: // it has left while it waited, or has no gate
	case more && d.rated != nil:
		d.pass = waiting
		if d.rated.Again() {
			d.pass = inside
		}
	default:
		d.pass = outside
		d.gate.Release()
	}
}

// gated is an instance behind a gate.
type gated struct {
	backends.Instance
	Lease // guarded by the station's mu
}

// Unwrap returns the instance itself.
func (g *gated) Unwrap() backends.Instance { return g.Instance }

// behind puts the instances behind the gates of the same positions.
func (s *Queue) behind(instances []backends.Instance, gates []Limiter) []backends.Instance {
	list := append([]backends.Instance(nil), instances...)
	for i, gate := range gates {
		if gate == nil {
			continue
		}
		g := &gated{Instance: instances[i]}
		var e Scheduler = entrance{s, g} // made once, so that being let in allocates nothing
		g.Lease = NewLease(gate, func() { s.workers.Kick(e) })
		list[i] = g
		s.gates = append(s.gates, g)
	}
	return list
}

// admit takes a free instance that may execute now, or none; called with the lock
// held and at least one instance free. One that was let in goes first; of the others
// each asks its gate until one is in, so that those refused are let in later.
//
// hot: without gates the last free instance, as it comes.
func (s *Queue) admit() backends.Instance {
	last := len(s.free) - 1
	if len(s.gates) == 0 {
		return s.grab(last)
	}
	for i := last; i >= 0; i-- {
		if g, ok := s.free[i].(*gated); ok && g.pass == inside {
			return s.grab(i)
		}
	}
	s.rank()
	for i := last; i >= 0; i-- {
		if g, ok := s.free[i].(*gated); !ok || g.Acquire() {
			return s.grab(i)
		}
	}
	return nil
}

// rank moves the instance that is to go first to the end of the free ones; called with
// the lock held.
func (s *Queue) rank() {
	best, least := -1, int64(0)
	for i := range s.free {
		g, ok := s.free[i].(*gated)
		if !ok || g.rated == nil || g.pass != outside {
			continue
		}
		if r := g.rated.Rank(); best < 0 || r < least {
			best, least = i, r
		}
	}
	if last := len(s.free) - 1; best >= 0 {
		s.free[best], s.free[last] = s.free[last], s.free[best]
	}
}

// grab takes the i-th free instance; called with the lock held.
func (s *Queue) grab(i int) backends.Instance {
	inst, last := s.free[i], len(s.free)-1
	s.free[i] = s.free[last]
	s.free = s.free[:last]
	return inst
}

// giveBack has instances leave that were let in while there is nothing for them to
// execute; called with the lock held.
func (s *Queue) giveBack() {
	if len(s.gates) == 0 {
		return
	}
	for _, inst := range s.free {
		if g, ok := inst.(*gated); ok {
			g.Release(false)
		}
	}
}

// leave ends an execution; more says that works wait. Called with the lock held.
func leave(inst backends.Instance, more bool) {
	if g, ok := inst.(*gated); ok {
		g.Release(more)
	}
}

// entrance is what a station has the workers help when an instance of it is let in.
type entrance struct {
	*Queue
	g *gated
}

// Help executes a batch with the instance, or has it leave.
func (e entrance) Help(t *RunLoop) bool {
	e.mu.Lock()
	e.g.Let()
	e.mu.Unlock()
	return e.Queue.Help(t)
}
