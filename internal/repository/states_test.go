package repository

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
)

// TestStates checks every transition between states.
func TestStates(t *testing.T) {
	t.Parallel()
	states := []infer.State{infer.Unavailable, infer.Loading, infer.Ready, infer.Unloading}
	allowed := map[[2]infer.State]bool{
		{infer.Unavailable, infer.Unavailable}: true,
		{infer.Unavailable, infer.Loading}:     true,
		{infer.Loading, infer.Ready}:           true,
		{infer.Loading, infer.Unavailable}:     true,
		{infer.Ready, infer.Ready}:             true,
		{infer.Ready, infer.Unloading}:         true,
		{infer.Unloading, infer.Unavailable}:   true,
	}
	for _, from := range states {
		for _, to := range states {
			l := newVersionState(3)
			l.current.Store(&condition{state: from})
			want := allowed[[2]infer.State{from, to}]
			if got := l.set(to, "why"); got != want || l.is(to) != (want || from == to) {
				t.Errorf("from %s to %s: %v, want %v", from, to, got, want)
			}
			if got := l.current.Load().reason; (got == "why") != want {
				t.Errorf("from %s to %s: reason %q", from, to, got)
			}
		}
	}
}
