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

// ending closes a call with an error of its own.
type ending struct {
	call *infer.Call
	name error
}

func (e *ending) End() {
	e.call.Send(infer.NewResponse())
	e.call.Close(e.name)
}

// TestCalls checks that Wake wakes every waiter of a batch, and that each ends its own call.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 8, 100} {
		var woken infer.WakeList
		var waiters sync.WaitGroup
		for i := range n {
			want, call := fmt.Errorf("call %d: %w", i, errOver), infer.NewCall()
			waiters.Go(func() {
				if resp, err := call.Wait(); err != want || resp != nil { //nolint:errorlint // must be identical
					t.Errorf("%d calls: response %v, error %v, want %v", n, resp, err, want)
				}
			})
			for e := (&ending{call, want}); !woken.Add(call, e); {
				runtime.Gosched()
			}
		}
		woken.Wake()
		waiters.Wait()
		woken.Wake() // the list is empty
	}
}

// TestCallWithoutWaiter checks that Add refuses a call that has no waiter yet, so that the caller ends it.
func TestCallWithoutWaiter(t *testing.T) {
	t.Parallel()
	var woken infer.WakeList
	call := infer.NewCall()
	e := &ending{call, errOver}
	if woken.Add(call, e) {
		t.Fatal("Add accepted a call without a waiter")
	}
	e.End()
	if resp, err := call.Wait(); !errors.Is(err, errOver) || resp != nil {
		t.Errorf("response %v, error %v, want %v", resp, err, errOver)
	}
}
