package python

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSends checks that responses leave in the order in which they were received.
func TestSends(t *testing.T) {
	t.Parallel()
	var e execution
	var got []int
	var sends []func()
	for id := range 5 {
		sends = append(sends, e.inOrder(func() { got = append(got, id) }))
	}
	var all sync.WaitGroup
	for i := range sends {
		all.Go(sends[len(sends)-1-i])
	}
	all.Wait()
	e.inOrder(func() { got = append(got, 5) })()
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
