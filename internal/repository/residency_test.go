package repository_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/simdev"
)

// room makes the spy's models run at simulated devices, where n instances fit on each.
func (w *world) room(t *testing.T, devices, n int) {
	t.Helper()
	cudatest.NotAtDevices(t, "it has devices of its own")
	machine, err := simdev.New(devices, simdev.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	w.more.EvictIdle = true
	for _, d := range machine.Devices() {
		w.more.Accelerators = append(w.more.Accelerators, d)
		w.spy.places = append(w.spy.places, d.Place())
	}
	w.more.Room = func(at tensor.Place) error {
		if used := w.spy.live(at); used >= n {
			return status.Errorf(status.Unavailable, "%d of the %d bytes of %s are in use", used, n, at)
		}
		return nil
	}
}

// live returns the number of open instances at a place, of one model if named.
func (s *spy) live(at tensor.Place, of ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.log {
		if name, ok := strings.CutPrefix(l, "at "+at.String()+" "); ok && (of == nil || slices.Contains(of, name)) {
			n++
		}
		if name, ok := strings.CutPrefix(l, "left "+at.String()+" "); ok && (of == nil || slices.Contains(of, name)) {
			n--
		}
	}
	return n
}

// reasons returns the reasons of the versions in the index that are READY, by model.
func reasons(t *testing.T, r *repository.Repository) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range r.Index(true) {
		all[e.Name] = e.Reason
	}
	return all
}

var evictedText = regexp.MustCompile(`^evicted from device:0 after \S+ idle; loads again on its next request$`)

// TestEvictIdle checks, with three models of which two fit, that the one that has been idle longest leaves, that it is READY with a
// reason, that its next request loads it again, and the metrics and log lines of that.
func TestEvictIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lines logtest.Buffer
	w.log = slog.NewTextHandler(&lines, nil)
	w.room(t, 1, 2)
	r := w.explicit(t, folder(t, plain("a", "spy")+plain("b", "spy")+plain("c", "spy")), "a", "b")
	ask := func(model string) {
		t.Helper()
		if got, err := send(t.Context(), r, w.request(model, 3)); err != nil || got != 6 {
			t.Errorf("model %s returned %v, %v", model, got, err)
		}
		for r.Busy() > 0 || r.Reloading() { // which may end after the response, and keep a model from being evicted
			runtime.Gosched()
		}
	}
	only := func(evicted string) {
		t.Helper()
		for name, why := range reasons(t, r) {
			if (name == evicted) != evictedText.MatchString(why) {
				t.Errorf("model %s: reason %q; expected %s to be evicted", name, why, evicted)
			}
			if err := r.ModelReady(name, -1); err != nil {
				t.Errorf("model %s: %v", name, err)
			}
		}
		if w.spy.live(simdev.Place(0), evicted) != 0 || w.spy.live(simdev.Place(0)) != 2 || !r.Ready() {
			t.Errorf("%d instances of model %s, %d of all; ready: %v", w.spy.live(simdev.Place(0), evicted), evicted, w.spy.live(simdev.Place(0)), r.Ready())
		}
	}
	ask("b")
	ask("a")
	if err := r.Load(t.Context(), "c", infer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	only("b")
	ask("b") // not c, although it was never used: it was loaded after the last request to a
	only("a")
	ask("c")
	ask("a")
	only("b")
	if err := r.Load(t.Context(), "b", infer.LoadOptions{}); err != nil { // nothing has changed but that it is evicted
		t.Fatal(err)
	}
	only("c")
	text := scrapeText(t, w.metrics)
	for _, line := range []string{
		`ensemble_model_evictions_total{model="a",version="1"} 1`, `ensemble_model_evictions_total{model="b",version="1"} 2`, `ensemble_model_evictions_total{model="c",version="1"} 1`,
		`ensemble_model_reloads_total{model="a",version="1"} 1`, `ensemble_model_reloads_total{model="b",version="1"} 2`, `ensemble_model_reloads_total{model="c",version="1"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if n := strings.Count(lines.String(), `level=INFO msg="model evicted to make room" model=b version=1 device=device:0`); n != 2 {
		t.Errorf("%d log lines of model b in\n%s", n, lines.String())
	}
	if err := r.Unload(t.Context(), "c", false); err != nil { // while it is evicted
		t.Error(err)
	}
	if _, err := send(t.Context(), r, w.request("c", 1)); status.CodeOf(err) != status.NotFound {
		t.Errorf("the unloaded model: %v", err)
	}
}

// TestEvictAtStart checks that more models than fit are loaded at the start, also when they load at the same time, and that each serves.
func TestEvictAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.room(t, 2, 2)
	var archive strings.Builder
	for i := range 6 {
		fmt.Fprintf(&archive, "%sinstance_group { kind: KIND_GPU gpus: %d }\n", plain(fmt.Sprintf("m%d", i), "spy"), i%2)
	}
	w.more.LoadThreads = 6
	r := w.repo(t, folder(t, archive.String()))
	if f := failures(r); len(f) > 0 {
		t.Fatal(f)
	}
	evicted := 0
	for name, why := range reasons(t, r) {
		at := "device:" + string('0'+name[1]%2)
		if why != "" && !strings.HasPrefix(why, "evicted from "+at+" ") {
			t.Errorf("model %s: %q", name, why)
		}
		if why != "" {
			evicted++
		}
	}
	if evicted != 2 {
		t.Errorf("%d models are evicted, expected 2: %v", evicted, reasons(t, r))
	}
	for i := range 12 {
		if got, err := send(t.Context(), r, w.request(fmt.Sprintf("m%d", i%6), 2)); err != nil || got != 4 {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// TestRefuseToEvict checks that without Settings.EvictIdle a load that does not fit fails with the figures and evicts nothing, and that
// with it a model that does not fit into an empty device does.
func TestRefuseToEvict(t *testing.T) {
	t.Parallel()
	const figures = "no instance of model 'b' can be made: %d of the %d bytes of device:0 are in use"
	for _, tc := range []struct {
		evicts bool
		room   int
		want   string
	}{
		{false, 1, fmt.Sprintf(figures, 1, 1)},
		{true, 0, fmt.Sprintf(figures, 0, 0) + "; no other model is there that could be evicted"},
	} {
		w := newWorld(t)
		w.room(t, 1, tc.room)
		w.more.EvictIdle = tc.evicts
		models := []string{"a"}
		if tc.room == 0 {
			models = nil
		}
		r := w.explicit(t, folder(t, plain("a", "spy")+plain("b", "spy")), models...)
		if err := r.Load(t.Context(), "b", infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if n := w.spy.live(simdev.Place(0)); n != tc.room {
			t.Errorf("%d instances are open, expected %d", n, tc.room)
		}
	}
}

// TestOneReload checks that requests for an evicted model wait for one load, that a cancelled one and one whose deadline passes stop
// waiting without ending the load, and that a failed load fails those that wait, with the reason, and the next request tries again.
func TestOneReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.room(t, 1, 1)
	r := w.explicit(t, folder(t, plain("a", "spy")+plain("b", "spy")), "a")
	if err := r.Load(t.Context(), "b", infer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	loads := w.spy.count("try a")
	w.spy.loading = make(chan chan struct{})
	const requests = 20
	results := make(chan error, requests)
	one := func(ctx context.Context, deadline time.Duration) {
		req := w.request("a", 3)
		if deadline > 0 {
			req.Timeout = uint64(deadline.Microseconds())
		}
		got, err := send(ctx, r, req)
		if err == nil && got != 6 {
			err = fmt.Errorf("got %v", got)
		}
		results <- err
	}
	for range requests - 1 {
		go one(t.Context(), 0)
	}
	wait := <-w.spy.loading
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := send(ctx, r, w.request("a", 1))
		gone <- err
	}()
	cancel()
	if err := <-gone; status.CodeOf(err) != status.Cancelled {
		t.Errorf("the cancelled request: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := send(ctx, r, w.request("a", 1)); !errors.Is(err, status.ErrDeadline) {
		t.Errorf("the request with a deadline: %v", err)
	}
	go one(t.Context(), 0)
	close(wait)
	for range requests {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := w.spy.count("try a") - loads; n != 1 {
		t.Errorf("%d loads, expected 1", n)
	}
	w.spy.loading = nil
	w.spy.set("b", errors.New("the file is torn"), "")
	for range 2 {
		const want = "model 'b' was evicted and cannot be loaded again: the file is torn"
		if _, err := send(t.Context(), r, w.request("b", 1)); status.CodeOf(err) != status.Unavailable || err.Error() != want {
			t.Errorf("the failed load: %v", err)
		}
	}
	w.spy.set("b", nil, "OTHER")
	if _, err := send(t.Context(), r, w.request("b", 1)); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "have changed since: load the model again") {
		t.Errorf("the changed model: %v", err)
	}
	w.spy.set("b", nil, "")
	if got, err := send(t.Context(), r, w.request("b", 1)); err != nil || got != 2 {
		t.Errorf("after the failures: %v, %v", got, err)
	}
}

// TestBusyStays checks that a model with a request in flight, and one that an ensemble in flight uses, are not evicted.
func TestBusyStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.room(t, 1, 3)
	r := w.explicit(t, folder(t, plain("a", "spy")+plain("b", "spy")+plain("c", "spy")+plain("d", "spy")+
		ensemble("ens", step("b", "-1", "IN", "M"), step("c", "-1", "M", "X"))), "a", "ens")
	w.spy.executing = make(chan chan struct{})
	done := make(chan error, 2)
	run := func(model string, want float32) (executing chan struct{}) {
		go func() {
			got, err := send(t.Context(), r, w.request(model, 1))
			if err == nil && got != want {
				err = fmt.Errorf("model %s returned %v", model, got)
			}
			done <- err
		}()
		return <-w.spy.executing
	}
	a := run("a", 2)
	b := run("ens", 4) // c waits for its request, and is idle
	loaded := make(chan error, 1)
	go func() { loaded <- r.Load(t.Context(), "d", infer.LoadOptions{}) }()
	for w.spy.count("try d") < 2 { // it does not fit, and looks for a model to evict
		runtime.Gosched()
	}
	for name, why := range reasons(t, r) {
		if why != "" {
			t.Errorf("model %s: %s", name, why)
		}
	}
	close(b)
	close(<-w.spy.executing) // c
	if err := errors.Join(<-done, <-loaded); err != nil {
		t.Error(err)
	}
	left := max(w.spy.first("close instance b"), w.spy.first("close instance c"))
	if n := w.spy.live(simdev.Place(0), "a"); n != 1 || left < w.spy.first("execute c") {
		t.Errorf("%d instances of the model with a request in flight; a model of the ensemble left at %d, executed at %d", n, left, w.spy.first("execute c"))
	}
	close(a)
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.spy.executing = nil
}

// TestTakeTurns checks that models of which one fits both make progress under requests without a pause, and an ensemble of both.
func TestTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.room(t, 1, 1)
	w.more.Residence = time.Millisecond
	r := w.repo(t, folder(t, plain("a", "spy")+plain("b", "spy")+"dynamic_batching {}\n"+
		ensemble("ens", step("a", "-1", "IN", "M"), step("b", "-1", "M", "X"))))
	var served [3]atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for i, name := range []string{"a", "b", "ens"} {
		for range 3 {
			wg.Go(func() {
				want := []float32{2, 2, 4}[i]
				for !over.Load() {
					if got, err := send(t.Context(), r, w.request(name, 1)); err != nil || got != want {
						t.Errorf("model %s returned %v, %v", name, got, err)
						over.Store(true)
					}
					served[i].Add(1)
					if min(served[0].Load(), served[1].Load(), served[2].Load()) >= 20 {
						over.Store(true)
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestEvictStorm sends requests to five models and ensembles of them, of which two fit, while models are loaded and unloaded and
// requests cancelled at random. Each request has the right response or an expected error, and nothing is left open.
func TestEvictStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.room(t, 1, 2)
	w.more.Residence = time.Millisecond
	var archive strings.Builder
	names := []string{"m0", "m1", "m2", "m3", "m4"}
	for i, name := range names {
		archive.WriteString(plain(name, "spy") + []string{"", "dynamic_batching {}\n"}[i%2])
	}
	archive.WriteString(ensemble("ens", step("m0", "-1", "IN", "A"), step("m1", "-1", "A", "B"), step("m2", "-1", "B", "X")))
	w.more.Mode, w.only = repository.Explicit, append([]string{"ens"}, names...)
	root := folder(t, archive.String())
	r, err := w.open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var served atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(g)))
			for range 30 {
				name, want := names[rng.IntN(5)], float32(2)
				if rng.IntN(4) == 0 {
					name, want = "ens", 8
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(5) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Microsecond)
				}
				got, err := send(ctx, r, w.request(name, 1))
				switch code := status.CodeOf(err); {
				case err == nil && got == want:
					served.Add(1)
				case err == nil || code != status.Cancelled && code != status.NotFound:
					t.Errorf("model %s returned %v, %v", name, got, err)
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(7, 99))
		for i := range 15 {
			name := names[3+rng.IntN(2)]
			switch i % 3 {
			case 0:
				if err := r.Unload(t.Context(), name, false); err != nil {
					t.Error(err)
				}
			case 1:
				touch(t, root, name)
			}
			if err := r.Load(t.Context(), name, infer.LoadOptions{}); err != nil {
				t.Errorf("load of %s: %v", name, err)
			}
		}
	})
	wg.Wait()
	if served.Load() == 0 || !r.Ready() {
		t.Errorf("%d requests were served; ready: %v", served.Load(), r.Ready())
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n, held := w.spy.live(simdev.Place(0)), w.alloc.Held(); n != 0 || held != 0 {
		t.Errorf("%d instances are open, %d buffers are held", n, held)
	}
	for _, name := range names {
		if loads, closes := w.spy.count("load "+name), w.spy.count("close model "+name); loads != closes {
			t.Errorf("model %s: %d loads, %d closed", name, loads, closes)
		}
	}
}
