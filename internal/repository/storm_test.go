package repository_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
)

// explicit opens the folder in explicit control mode with the named models.
func (w *world) explicit(t *testing.T, root string, models ...string) *repository.Repository {
	t.Helper()
	w.more.Mode, w.only = repository.Explicit, append([]string{}, models...)
	return w.repo(t, root)
}

// traffic sends v from several goroutines until stopped, and returns the number of requests.
func traffic(t *testing.T, w *world, r *repository.Repository, factors map[string]float32) (stop func() int64) {
	t.Helper()
	var over atomic.Bool
	var n atomic.Int64
	var wg sync.WaitGroup
	for name, factor := range factors {
		for range 2 {
			wg.Go(func() {
				for v := float32(1); !over.Load(); v++ {
					if got, err := send(context.Background(), r, w.request(name, v)); err != nil || got != factor*v {
						t.Errorf("model %s returned %v, %v; want %v", name, got, err, factor*v)
						return
					}
					n.Add(1)
				}
			})
		}
	}
	return func() int64 {
		over.Store(true)
		wg.Wait()
		return n.Load()
	}
}

// TestReloadStorm reloads the models of an ensemble while it serves. It checks that no request fails or has a wrong
// output, and that replaced versions are closed.
func TestReloadStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stepOf("queued", false, double))
	root := folder(t, plain("part", "spy")+model("step", "queued", "dynamic_batching {}")+
		ensemble("ens", step("part", "-1", "IN", "M"), step("step", "-1", "M", "X"))+
		ensemble("outer", step("ens", "-1", "IN", "M"), step("part", "-1", "M", "X")))
	w.more.Mode, w.only = repository.Explicit, []string{"outer"}
	r, err := w.open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	stop := traffic(t, w, r, map[string]float32{"outer": 8, "ens": 4, "part": 2, "step": 2})
	const reloads = 200
	for i := range reloads {
		name := []string{"part", "part", "step", "ens", "part"}[i%5]
		touch(t, root, name)
		if err := r.Load(t.Context(), name, infer.LoadOptions{}); err != nil {
			t.Errorf("load %d of %s: %v", i, name, err)
		}
		if _, err := w.metrics.Gather(); err != nil {
			t.Errorf("scrape %d: %v", i, err)
		}
		if !r.Ready() {
			t.Error("not ready while reloading")
		}
	}
	n := stop()
	stats, err := r.Statistics("outer", 0)
	if err != nil || stats[0].Inference.Success.Count == 0 || stats[0].Inference.Fail.Count != 0 {
		t.Errorf("statistics %+v, %v", stats, err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("%d requests during %d reloads", n, reloads)
	if loads, closes := w.spy.count("load part"), w.spy.count("close model part"); loads != 1+3*reloads/5 || closes != loads {
		t.Errorf("%d models were loaded, %d closed", loads, closes)
	}
	if made, closed := w.spy.count("instance part"), w.spy.count("close instance part"); made != closed {
		t.Errorf("%d instances were made, %d closed", made, closed)
	}
	if held := w.alloc.Held(); held != 0 {
		t.Errorf("%d buffers are held", held)
	}
}

// TestUnloadUnderLoad loads and unloads under requests. It checks that each either succeeds or reports that the
// model is not loaded.
func TestUnloadUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, plain("part", "spy")+ensemble("ens", step("part", "-1", "IN", "X"))), "ens")
	var over atomic.Bool
	var wg sync.WaitGroup
	var served, refused atomic.Int64
	for _, name := range []string{"ens", "part", "ens", "part"} {
		wg.Go(func() {
			for !over.Load() {
				got, err := send(context.Background(), r, w.request(name, 3))
				switch {
				case err == nil && got == 6:
					served.Add(1)
				case status.CodeOf(err) == status.NotFound:
					refused.Add(1)
				default:
					t.Errorf("model %s returned %v, %v", name, got, err)
				}
			}
		})
	}
	for range 50 {
		for seen := served.Load(); served.Load() == seen; {
			runtime.Gosched() // let a request execute between two changes
		}
		if err := r.Unload(t.Context(), "ens", true); err != nil {
			t.Error(err)
		}
		for seen := refused.Load(); refused.Load() == seen; {
			runtime.Gosched()
		}
		if err := r.Load(t.Context(), "ens", infer.LoadOptions{}); err != nil {
			t.Error(err)
		}
	}
	over.Store(true)
	wg.Wait()
}

// TestUnloadWaits checks that an active request completes after an unload.
func TestUnloadWaits(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, stepOf("gate", false, gate(entered, leave)))
	r := w.explicit(t, folder(t, model("gate", "gate", "")+ensemble("ens", step("gate", "-1", "IN", "X"))), "ens")
	call := infer.NewCall()
	var wg sync.WaitGroup
	req := w.request("ens", 3)
	wg.Go(func() { r.Submit(context.Background(), req, call) })
	<-entered
	if err := r.Unload(t.Context(), "ens", true); err != nil {
		t.Error(err)
	}
	want := []infer.Entry{
		{Name: "ens", Version: "1", State: infer.Unloading, Ensemble: true}, {Name: "gate", Version: "1", State: infer.Unloading},
	}
	if d := cmp.Diff(want, r.Index(false)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
	if _, err := send(t.Context(), r, w.request("gate", 1)); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unloaded model returned %v", err)
	}
	close(leave)
	resp, err := call.Wait()
	if err != nil {
		t.Fatalf("the active request: %v", err)
	}
	resp.Release()
	wg.Wait()
	waitState(t, r, infer.Unavailable)
	for i := range want {
		want[i].State, want[i].Reason = infer.Unavailable, "unloaded"
	}
	if d := cmp.Diff(want, r.Index(false)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
}

// gate returns a step whose first execution closes entered and waits for leave. Later ones run at once.
func gate(entered chan<- struct{}, leave <-chan struct{}) stepFunc {
	var once sync.Once
	return func(ctx context.Context, b *backends.Batch) error {
		once.Do(func() {
			close(entered)
			<-leave
		})
		return double(ctx, b)
	}
}

// waitState waits until every version is in the given state.
func waitState(t *testing.T, r *repository.Repository, state infer.State) {
	t.Helper()
	for {
		done := true
		for _, e := range r.Index(false) {
			done = done && (e.State == state || e.Version == "")
		}
		if done {
			return
		}
		runtime.Gosched()
	}
}

// TestConcurrentChanges loads and unloads the same and related models concurrently.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, plain("a", "spy")+plain("b", "spy")+
		ensemble("ens", step("a", "-1", "IN", "M"), step("b", "-1", "M", "X"))+
		ensemble("ens2", step("ens", "-1", "IN", "M"), step("b", "-1", "M", "X"))))
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "ens", "ens2", "ens2"} {
		wg.Go(func() {
			for i := range 20 {
				if err := r.Load(t.Context(), name, infer.LoadOptions{}); err != nil {
					t.Errorf("load %s: %v", name, err)
				}
				if got, err := send(t.Context(), r, w.request(name, 1)); err == nil && got < 2 {
					t.Errorf("model %s returned %v", name, got)
				}
				if err := r.Unload(t.Context(), name, i%2 == 0); err != nil {
					t.Errorf("unload %s: %v", name, err)
				}
				r.Index(i%2 == 0)
			}
		})
	}
	wg.Wait()
	if err := r.Load(t.Context(), "ens2", infer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := send(t.Context(), r, w.request("ens2", 1)); err != nil || got != 8 {
		t.Errorf("after all changes: %v, %v", got, err)
	}
}
