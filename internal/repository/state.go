package repository

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
)

// unloaded is Triton's reason for an unloaded version.
const unloaded = "unloaded"

// versionState is the state of one version of a model. Index reads it while it changes.
type versionState struct {
	number  int64
	current atomic.Pointer[condition]
}

type condition struct {
	state  infer.State
	reason string
}

// newVersionState returns the state UNAVAILABLE.
func newVersionState(number int64) *versionState {
	l := &versionState{number: number}
	l.current.Store(&condition{state: infer.Unavailable})
	return l
}

// transitions lists the states that may follow each state. A state that follows itself gets another reason.
var transitions = map[infer.State][]infer.State{
	infer.Unavailable: {infer.Unavailable, infer.Loading},
	infer.Loading:     {infer.Ready, infer.Unavailable},
	infer.Ready:       {infer.Ready, infer.Unloading},
	infer.Unloading:   {infer.Unavailable},
}

// set changes the state. It reports false if the transition is not allowed.
func (l *versionState) set(state infer.State, reason string) bool {
	for {
		old := l.current.Load()
		if !slices.Contains(transitions[old.state], state) {
			return false
		}
		if l.current.CompareAndSwap(old, &condition{state, reason}) {
			return true
		}
	}
}

// is reports whether the version is in the given state.
func (l *versionState) is(state infer.State) bool { return l.current.Load().state == state }

// mergeStates returns the states of both lists, ascending by number. For a number in both, the state of first
// counts.
func mergeStates(first, second []*versionState) []*versionState {
	all := slices.Clone(first)
	for _, l := range second {
		if !slices.ContainsFunc(first, func(x *versionState) bool { return x.number == l.number }) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *versionState) int { return cmp.Compare(a.number, b.number) })
	return all
}
