package repository

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
)

// unloaded is the reason of a version that was unloaded, as Triton words it.
const unloaded = "unloaded"

// life is how one version of a model is. The index reads it while it changes.
type versionState struct {
	number  int64
	current atomic.Pointer[condition]
}

type condition struct {
	state  infer.State
	reason string
}

// newLife returns a version that is unavailable.
func newVersionState(number int64) *versionState {
	l := &versionState{number: number}
	l.current.Store(&condition{state: infer.Unavailable})
	return l
}

// follows lists the states that may follow each state. A state that follows itself
// gets another reason.
var transitions = map[infer.State][]infer.State{
	infer.Unavailable: {infer.Unavailable, infer.Loading},
	infer.Loading:     {infer.Ready, infer.Unavailable},
	infer.Ready:       {infer.Ready, infer.Unloading},
	infer.Unloading:   {infer.Unavailable},
}

// to is the only way from one state to another. false: the state cannot follow.
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

// merge returns the lives of both lists by ascending number; of a number in both,
// that of first.
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
