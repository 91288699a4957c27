package exec_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

var soak = flag.Int("requests", 1_000_000, "how many requests TestSoakBudget sends")

// TestSoakBudget sends a million requests (ten million in make soak) through a graph of identities, some of which
// are cancelled or fail. It checks that no buffer, task or goroutine (in TestMain) is left. With the race detector
// and with models on devices it sends a fiftieth.
func TestSoakBudget(t *testing.T) {
	n := *soak
	if testing.Short() || racetest.Enabled || mode != "" {
		n /= 50
	}
	workers := scheduler.NewWorkers()
	checked := tensortest.NewChecked(t, nil)
	b := &bench{workers: workers, alloc: checked}
	if mode != "" {
		b.device = newTestDevice(t, b, mode == "mixed")
	}
	sig := signature("m", 1, 8)
	targets := []scheduler.Scheduler{
		b.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share), model(share)), b.inline(sig, refuse), b.inline(sig, share),
		b.batching(sig, dynamic.Rules{MaxBatch: 4}, model(copies)), b.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share)),
	}
	x := b.executor(chain(len(targets), sig), targets...)
	const callers = 32
	var answered, failed atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			s := soaker{t: t, b: b, x: x, rng: rand.New(rand.NewPCG(uint64(c), 3)), answered: &answered, failed: &failed} //nolint:gosec // reproducible by client
			for range n / callers {
				s.one()
			}
		})
	}
	wg.Wait()
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	for i, s := range targets {
		if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	workers.Close()
	if got := answered.Load() + failed.Load(); got != int64(n/callers*callers) || failed.Load() == 0 {
		t.Errorf("%d responses and %d failures to %d requests", answered.Load(), failed.Load(), n)
	}
	if held := checked.Held(); held != 0 && mode == "" { // memory held by streams is checked when they are closed
		t.Errorf("%d buffers are held", held)
	}
}

// refuse is share, except that it fails negative rows.
func refuse(b *backends.Batch) error {
	for row, v := range tensor.Slice[float32](&b.In[0]) {
		if v < 0 {
			b.Fail(row, errBroken)
		}
	}
	return share(b)
}

// copies returns copies of its inputs.
func copies(b *backends.Batch) error { return add(0)(b) }

// soaker is one client.
type soaker struct {
	t                *testing.T
	b                *bench
	x                *exec.Executor
	rng              *rand.Rand
	answered, failed *atomic.Int64
}

func (s *soaker) one() {
	v, cancelled := float32(s.rng.IntN(1000)), s.rng.IntN(100) == 0
	if s.rng.IntN(50) == 0 {
		v = -1
	}
	ctx := context.Background()
	if cancelled {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over
	}
	call := infer.NewCall()
	s.x.Submit(ctx, s.b.request(v), call)
	resp, err := call.Wait()
	switch {
	case err == nil:
		if got := tensor.Slice[float32](&resp.Outputs[0].Tensor); len(got) != 1 || got[0] != v || v < 0 {
			s.t.Errorf("sent %v, got %v", v, got)
		}
		s.answered.Add(1)
		resp.Release()
	case cancelled && status.CodeOf(err) == status.Cancelled, v < 0 && errors.Is(err, errBroken):
		s.failed.Add(1)
	default:
		s.t.Errorf("request %v: %v", v, err)
	}
}
