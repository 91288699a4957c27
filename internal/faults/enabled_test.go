//go:build faults

package faults_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/internal/faults"
)

// TestSeed checks that a seed fails the same calls each time, another seed others, and that the errors are the system's.
func TestSeed(t *testing.T) { //nolint:paralleltest // the plan is the process's
	defer faults.Set(nil)
	run := func(seed uint64) (failed [200]bool) {
		p := faults.Plan{Seed: seed}
		p.Chance[faults.FileWrite] = 0.3
		faults.Set(&p)
		for i := range failed {
			err := faults.At(faults.FileWrite)
			failed[i] = err != nil
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a write fails with %v", err)
			}
			if faults.At(faults.FileRead) != nil {
				t.Error("a point without a chance fails")
			}
		}
		return failed
	}
	one, again, other := run(1), run(1), run(2)
	if one != again || one == other {
		t.Errorf("seed 1: %v\nagain: %v\nseed 2: %v", one, again, other)
	}
	failed, calls := faults.Set(nil)
	if calls[faults.FileWrite] != 200 || failed[faults.FileWrite] < 30 || failed[faults.FileWrite] > 90 || faults.At(faults.FileWrite) != nil {
		t.Errorf("%d of %d calls failed", failed[faults.FileWrite], calls[faults.FileWrite])
	}
}

// TestNth checks that exactly the chosen call fails, with concurrent callers too.
func TestNth(t *testing.T) { //nolint:paralleltest // the plan is the process's
	p := faults.Plan{}
	p.Nth[faults.PoolAlloc] = 7
	faults.Set(&p)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if err := faults.At(faults.PoolAlloc); err != nil && err.Error() != "injected fault: pool-alloc 7: cannot allocate memory" {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if failed, calls := faults.Set(nil); failed[faults.PoolAlloc] != 1 || calls[faults.PoolAlloc] != 80 {
		t.Errorf("%d of %d calls failed", failed[faults.PoolAlloc], calls[faults.PoolAlloc])
	}
}
