package infer_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
)

var errOver = errors.New("over")

// ending answers a call with the failure that names it.
type ending struct {
	call *infer.Call
	name error
}

func (e *ending) End() {
	e.call.Send(infer.NewResponse())
	e.call.Close(e.name)
}

// TestCalls checks that every waiter of a batch is woken and makes its own answer.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 8, 100} {
		var woken infer.WakeList
		var waiters sync.WaitGroup
		for i := range n {
			want, call := fmt.Errorf("call %d: %w", i, errOver), infer.NewCall()
			waiters.Go(func() {
				if resp, err := call.Wait(); err != want || resp != nil { //nolint:errorlint // this very one
					t.Errorf("%d calls: response %v, error %v, want %v", n, resp, err, want)
				}
			})
			for e := (&ending{call, want}); !woken.Add(call, e); {
				runtime.Gosched()
			}
		}
		woken.Wake()
		waiters.Wait()
		woken.Wake() // nobody any more
	}
}

// TestCallsNobodyWaits checks that a call is answered at once for which nobody waits yet.
func TestCallsNobodyWaits(t *testing.T) {
	t.Parallel()
	var woken infer.WakeList
	call := infer.NewCall()
	e := &ending{call, errOver}
	if woken.Add(call, e) {
		t.Fatal("a call has a waiter that nobody waits for")
	}
	e.End()
	if resp, err := call.Wait(); !errors.Is(err, errOver) || resp != nil {
		t.Errorf("response %v, error %v, want %v", resp, err, errOver)
	}
}
