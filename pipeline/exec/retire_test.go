package exec_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// endless is a signature with an input that no request has, so that every request is refused at once.
var endless = config.Signature{Model: "m", Version: 1, Inputs: []config.Port{{Name: "IN"}}}

// TestRetire offers requests while the executor retires. It checks that each is either refused or ends before Drain
// returns.
func TestRetire(t *testing.T) {
	t.Parallel()
	for range 50 {
		x := exec.New(exec.Settings{Plan: plan.Single(&endless), Targets: make([]scheduler.Scheduler, 1), Workers: scheduler.NewWorkers()})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					req, call := infer.NewRequest(), infer.NewCall()
					if !x.Offer(context.Background(), req, call) {
						req.Release()
						call.Close(nil)
						_, _ = call.Wait()
						return
					}
					if _, err := call.Wait(); err == nil {
						t.Error("a request without its input succeeds")
					}
				}
			})
		}
		x.Retire()
		if err := x.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
