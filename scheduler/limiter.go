package scheduler

// Limiter admits the executions of one instance, for example the rate limiter, or a bound on
// how many batches a device executes at a time. Each instance has one, or nil, which costs
// nothing.
//
// Lifecycle of an execution: Acquire; if it returned false, the call of resume; the batch;
// Release. Acquire must not be called again before Release.
type Limiter interface {
	// Acquire asks for one execution and does not block. True: the instance may execute.
	// False: it may once resume is called, which happens exactly once; Release must follow
	// even if there is nothing left to execute. resume is the same function in each call. It
	// must not block and may be called before Acquire returns.
	Acquire(resume func()) bool
	// Release ends the execution.
	Release()
}

// Ranked is a Limiter that shares executions out between the instances of a model.
type Ranked interface {
	Limiter
	// Rank orders the free instances: the one with the lowest rank goes first.
	Rank() int64
	// Reacquire is Release and Acquire in one step, for an instance that has more to execute.
	Reacquire() bool
}

// Lease is the state of an instance at its limiter. A zero Lease has no limiter and always
// admits. It is not safe for concurrent use: its owner's lock guards it.
type Lease struct {
	limiter Limiter
	ranked  Ranked // limiter, when it is one
	resume  func()
	state   leaseState
}

type leaseState uint8

const (
	released leaseState = iota
	waiting             // asked, and not admitted yet
	held
)

// NewLease returns a lease at limiter, which may be nil. resume is called when the limiter
// admits an instance that it had refused; it must lead to a call of Admitted under the owner's
// lock.
func NewLease(limiter Limiter, resume func()) Lease {
	d := Lease{limiter: limiter, resume: resume}
	d.ranked, _ = limiter.(Ranked)
	return d
}

// Acquire reports whether the instance may execute; if not, it asks once.
//
// hot: no allocation.
func (d *Lease) Acquire() bool {
	if d.limiter == nil {
		return true
	}
	if d.state == released {
		d.state = waiting
		if d.limiter.Acquire(d.resume) {
			d.state = held
		}
	}
	return d.state == held
}

// Admitted notes that the limiter has admitted the instance.
func (d *Lease) Admitted() { d.state = held }

// Waiting reports whether the instance has asked and is not admitted yet.
func (d *Lease) Waiting() bool { return d.state == waiting }

// Held reports whether the limiter has admitted the instance.
func (d *Lease) Held() bool { return d.state == held }

// Rank returns the rank of an instance that would have to ask its limiter; ok is false for any
// other.
func (d *Lease) Rank() (rank int64, ok bool) {
	if d.ranked == nil || d.state != released {
		return 0, false
	}
	return d.ranked.Rank(), true
}

// Release ends an execution; more reports that the instance has more to execute. It does
// nothing unless the lease is held.
func (d *Lease) Release(more bool) {
	switch {
	case d.state != held:
	case more && d.ranked != nil:
		d.state = waiting
		if d.ranked.Reacquire() {
			d.state = held
		}
	default:
		d.state = released
		d.limiter.Release()
	}
}
