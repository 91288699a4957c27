package repository_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/repository"
)

// model returns the configuration of a native step, with more appended.
func model(name, step, more string) string {
	return "-- " + name + "/1/ --\n-- " + name + "/config.pbtxt --\n" +
		`backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "` + step + `" } }` + "\n" + more + "\n"
}

// TestCloseOrder checks that everything is closed, and after its users.
func TestCloseOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := w.open(t.Context(), folder(t, plain("a", "spy")+plain("b", "spy")))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := send(t.Context(), r, w.request("a", 2)); err != nil || got != 4 {
		t.Fatalf("got %v, %v", got, err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := w.spy.count("open backend"); n != 1 {
		t.Errorf("the backend was opened %d times", n)
	}
	if n := w.spy.count("close backend"); n != 1 {
		t.Errorf("the backend was closed %d times", n)
	}
	for _, m := range []string{"a", "b"} {
		i, c, b := w.spy.first("close instance "+m), w.spy.first("close model "+m), w.spy.first("close backend")
		if i < 0 || c < i || b < c {
			t.Errorf("model %s: instance closed at %d, model at %d, backend at %d", m, i, c, b)
		}
	}
}

// TestLoadFailureLeavesNothing checks that a failed load closes everything it has created.
func TestLoadFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t,
		plain("uninstantiable", "spy")+"instance_group { count: 3 kind: KIND_CPU }\n"+
			plain("unpaddable", "spy")+`parameters { key: "pad.NONE" value { string_value: "0" } }`+"\n"+
			plain("unbatched", "spy")+`parameters { key: "pad.IN" value { string_value: "0" } }`+"\n"+
			plain("unbounded", "spy")+`dynamic_batching {} parameters { key: "max_batch_elements" value { string_value: "-1" } }`+"\n"))
	for name, want := range map[string]string{
		"uninstantiable": "no room for a second one",
		"unpaddable":     "parameter 'pad.NONE' of model 'unpaddable' names no input",
		"unbatched":      "model 'unbatched' has parameters that pad inputs, but no dynamic_batching",
		"unbounded":      "parameter 'max_batch_elements' of model 'unbounded' is '-1', expected a positive integer",
	} {
		if got := failures(r)[name]; got != want {
			t.Errorf("model %s failed with %q, want %q", name, got, want)
		}
		if n := w.spy.count("close model " + name); n != 1 {
			t.Errorf("model %s was closed %d times", name, n)
		}
		if made, closed := w.spy.count("instance "+name), w.spy.count("close instance "+name); made != closed {
			t.Errorf("model %s: %d instances were made, %d closed", name, made, closed)
		}
	}
}

// TestCloseWaits checks that Close waits for active requests.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, stepOf("gate", false, func(ctx context.Context, b *backends.Batch) error {
		close(entered)
		<-leave
		return double(ctx, b)
	}))
	r, err := w.open(t.Context(), folder(t, model("gate", "gate", "")+ensemble("ens", step("gate", "-1", "IN", "X"))))
	if err != nil {
		t.Fatal(err)
	}
	call := infer.NewCall()
	req := w.request("ens", 3)
	var wg sync.WaitGroup
	wg.Go(func() { r.Submit(context.Background(), req, call) })
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(over); !errors.Is(err, context.Canceled) {
		t.Errorf("closed with an active request: %v", err)
	}
	closed := make(chan error, 1)
	wg.Go(func() { closed <- r.Close(context.Background()) })
	select {
	case err := <-closed:
		t.Errorf("closed with an active request: %v", err)
		closed <- err
	default:
	}
	close(leave)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	resp, err := call.Wait()
	if err != nil {
		t.Errorf("the active request failed: %v", err)
	} else {
		resp.Release()
	}
	wg.Wait()
}

// TestInstances checks the number of instances: the step returns only when n execute at once, so with fewer
// instances the test would not end.
// shows: config.instances
func TestInstances(t *testing.T) {
	cudatest.NotAtDevices(t, "without a count there is one instance at each device, and none is inline")
	t.Parallel()
	processors := runtime.GOMAXPROCS(0)
	for _, tc := range []struct {
		name   string
		inline bool
		more   string
		n      int
	}{
		{"as many as processors", false, "", processors},
		{"as configured", false, "instance_group { count: 3 } instance_group { count: 2 }", 5},
		{"inline without a queue", true, "", 4 * processors},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var meeting sync.WaitGroup
			meeting.Add(tc.n)
			w := newWorld(t, stepOf("meet", tc.inline, func(ctx context.Context, b *backends.Batch) error {
				meeting.Done()
				meeting.Wait()
				return double(ctx, b)
			}))
			r := w.repo(t, folder(t, model("meet", "meet", tc.more)))
			sendAll(t, w, r, "meet", tc.n)
		})
	}
}

// sendAll sends n requests concurrently.
func sendAll(t *testing.T, w *world, r *repository.Repository, name string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			v := float32(i)
			if got, err := send(t.Context(), r, w.request(name, v)); err != nil || got != 2*v {
				t.Errorf("got %v, %v; want %v", got, err, 2*v)
			}
		})
	}
	wg.Wait()
}

// TestNoMoreThanInstances checks that a model never has more concurrent executions than instances.
func TestNoMoreThanInstances(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 1)
	w := newWorld(t, stepOf("alone", false, func(ctx context.Context, b *backends.Batch) error {
		select {
		case slots <- struct{}{}:
		default:
			t.Error("two executions of one instance at once")
		}
		runtime.Gosched()
		<-slots
		return double(ctx, b)
	}))
	r := w.repo(t, folder(t, model("alone", "alone", "instance_group { count: 1 }")))
	sendAll(t, w, r, "alone", 50)
}

// TestConcurrentUse sends requests and reads metadata and statistics concurrently.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stepOf("slow", false, double))
	r := w.repo(t, folder(t, model("slow", "slow", "dynamic_batching {}")+doubleModel+
		ensemble("ens", step("ens2", "-1", "IN", "M"), step("slow", "-1", "M", "X"))+
		ensemble("ens2", step("plain", "-1", "IN", "M"), step("slow", "-1", "M", "X"))))
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for k := range 50 {
				v := float32(c*100 + k)
				if got, err := send(t.Context(), r, w.request("ens", v)); err != nil || got != 8*v {
					t.Errorf("got %v, %v; want %v", got, err, 8*v)
				}
				if _, err := send(t.Context(), r, w.request("none", v)); err == nil {
					t.Error("an unknown model returned a response")
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				_, stats := r.Statistics("", 0)
				_, metadata := r.Metadata("ens", 0)
				if err := errors.Join(stats, metadata, r.ModelReady("slow", 1)); err != nil || !r.Ready() {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for w.machine != nil && w.alloc.Held() != 0 && t.Context().Err() == nil {
		runtime.Gosched() // a stream releases what it has copied from a little later
	}
	if n := w.alloc.Held(); n != 0 {
		t.Errorf("%d buffers are held when all requests are over", n)
	}
}
