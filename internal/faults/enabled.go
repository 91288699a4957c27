//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
)

// Enabled reports whether the program was built with the tag faults.
const Enabled = true

// Plan decides which calls fail.
type Plan struct {
	Seed uint64
	// Chance is the probability with which a call at a point fails; 0 for never.
	Chance [NumPoints]float64
	// Nth fails the call of this number at a point, counted from 1; 0 for none.
	Nth [NumPoints]uint64
}

// state is a plan in use.
type state struct {
	plan   Plan
	calls  [NumPoints]atomic.Uint64
	failed [NumPoints]atomic.Uint64
}

// current is the plan of the process: only programs of tests have the tag.
var current atomic.Pointer[state]

// Set uses a plan from now on, and counts calls from zero. Nil ends all faults. It returns how often each point has failed since the
// last Set, and of how many calls.
func Set(p *Plan) (failed, calls [NumPoints]uint64) {
	var next *state
	if p != nil {
		next = &state{plan: *p}
	}
	if before := current.Swap(next); before != nil {
		for i := range failed {
			failed[i], calls[i] = before.failed[i].Load(), before.calls[i].Load()
		}
	}
	return failed, calls
}

// Error is the failure of a call that a plan has chosen.
type Error struct {
	Point Point
	Call  uint64 // the number of the call at the point
	Errno syscall.Errno
}

// Error names the point and the call.
func (e *Error) Error() string {
	return fmt.Sprintf("injected fault: %s %d: %s", e.Point, e.Call, e.Errno.Error())
}

// Unwrap returns the error that the system would have returned.
func (e *Error) Unwrap() error { return e.Errno }

// errnos are the errors that the system returns at each point.
var errnos = [NumPoints]syscall.Errno{
	syscall.EIO, syscall.ENOSPC, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
}

// At returns the error of a call at a point if the plan fails it. It is safe for concurrent use.
func At(p Point) error {
	s := current.Load()
	if s == nil {
		return nil
	}
	n := s.calls[p].Add(1)
	// The decision depends on the seed, the point and the number of the call alone.
	draw := rand.New(rand.NewPCG(s.plan.Seed, uint64(p)<<56|n)).Float64() //nolint:gosec // reproducible
	if n != s.plan.Nth[p] && draw >= s.plan.Chance[p] {
		return nil
	}
	s.failed[p].Add(1)
	return &Error{Point: p, Call: n, Errno: errnos[p]}
}
