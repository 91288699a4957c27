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
type life struct {
	number int64
	now    atomic.Pointer[condition]
}

type condition struct {
	state  infer.State
	reason string
}

// newLife returns a version that is unavailable.
func newLife(number int64) *life {
	l := &life{number: number}
	l.now.Store(&condition{state: infer.Unavailable})
	return l
}

// follows lists the states that may follow each state. A state that follows itself
// gets another reason.
var follows = map[infer.State][]infer.State{
	infer.Unavailable: {infer.Unavailable, infer.Loading},
	infer.Loading:     {infer.Ready, infer.Unavailable},
	infer.Ready:       {infer.Ready, infer.Unloading},
	infer.Unloading:   {infer.Unavailable},
}

// to is the only way from one state to another. false: the state cannot follow.
func (l *life) to(state infer.State, reason string) bool {
	for {
		old := l.now.Load()
		if !slices.Contains(follows[old.state], state) {
			return false
		}
		if l.now.CompareAndSwap(old, &condition{state, reason}) {
			return true
		}
	}
}

// is reports whether the version is in the given state.
func (l *life) is(state infer.State) bool { return l.now.Load().state == state }

// merge returns the lives of both lists by ascending number; of a number in both,
// that of first.
func merge(first, second []*life) []*life {
	all := slices.Clone(first)
	for _, l := range second {
		if !slices.ContainsFunc(first, func(x *life) bool { return x.number == l.number }) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *life) int { return cmp.Compare(a.number, b.number) })
	return all
}
