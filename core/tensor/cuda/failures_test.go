package cuda_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// workload is what a server does with its GPUs, from the opening of the driver to its end. It releases all it has, also after an
// error.
type workload struct {
	t       *testing.T
	driver  *cuda.Driver
	devices []*cuda.Device
	pinned  *cuda.Pinned
	streams []*cuda.Stream
	buffers []*tensor.Buffer
	lost    bool
}

// runWorkload returns the first error of a call. It fails the test on other content, and on an error of the end.
func runWorkload(t *testing.T) (w *workload, err error) {
	t.Helper()
	driver, err := cuda.Open(cudatest.Library(t))
	must(t, err)
	w = &workload{t: t, driver: driver}
	w.devices, err = driver.Devices(cuda.Options{})
	must(t, err)
	w.pinned = cuda.NewPinned(w.devices[0], 8<<20, tensor.NewPool())
	err = w.use()
	failed := w.end()
	for _, d := range w.devices {
		w.lost = w.lost || d.Lost() != nil
	}
	if failed != nil && !w.lost {
		t.Errorf("the end of a device: %v", failed)
	}
	return w, err
}

// hold keeps a buffer until the end.
func (w *workload) hold(b *tensor.Buffer, err error) (*tensor.Buffer, error) {
	if err == nil {
		w.buffers = append(w.buffers, b)
	}
	return b, err
}

func (w *workload) use() error {
	for _, d := range []int{0, 0, 1} {
		s, err := w.devices[d].Open("s", 0)
		if err != nil {
			return err
		}
		w.streams = append(w.streams, s)
	}
	const n = 3 << 20
	from, err := w.hold(w.pinned.Alloc(n))
	if err != nil {
		return err
	}
	copy(from.Bytes(), bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, n/7+1))
	x, err := w.hold(w.streams[0].Alloc(n))
	if err != nil {
		return err
	}
	if err := w.measured(func() error { return w.streams[0].Copy(x, 0, from, 0, n) }); err != nil {
		return err
	}
	x.SetReady(w.streams[0].Record())
	y, err := w.through(w.streams[1], x, n)
	if err != nil {
		return err
	}
	z, err := w.through(w.streams[2], y, n)
	if err != nil {
		return err
	}
	shared, _, err := w.devices[1].AllocShared(n)
	if _, err = w.hold(shared, err); err != nil {
		return err
	}
	to, err := w.hold(w.pinned.Alloc(n))
	if err != nil {
		return err
	}
	if err := w.streams[2].Copy(to, 0, z, 0, n); err != nil {
		return err
	}
	e := w.streams[2].Record()
	if err := e.Wait(); err != nil {
		if e.Done() {
			w.t.Error("an event that failed is done")
		}
		if again := e.Wait(); again == nil {
			w.t.Errorf("a second Wait succeeds after %v", err)
		}
		return err
	}
	if !bytes.Equal(from.Bytes(), to.Bytes()) {
		w.t.Error("other content came back, without an error")
	}
	return nil
}

// measured measures work of the first stream.
func (w *workload) measured(work func() error) error {
	p, err := w.streams[0].Span()
	if err != nil {
		return err
	}
	defer p.Release()
	for _, f := range []func() error{func() error { return p.Mark(false) }, work, func() error { return p.Mark(true) }, p.Wait} {
		if err := f(); err != nil {
			return err
		}
	}
	if ns, ok, err := p.Laps(true); err != nil || !ok || ns[0] <= 0 {
		w.t.Errorf("laps of %v, %v, %v", ns, ok, err)
	}
	_, _, err = p.Start()
	return err
}

// through copies a buffer by another stream.
func (w *workload) through(s *cuda.Stream, x *tensor.Buffer, n int) (*tensor.Buffer, error) {
	if err := x.Ready().WaitOn(s); err != nil {
		return nil, err
	}
	y, err := w.hold(s.Alloc(n))
	if err != nil {
		return nil, err
	}
	if err := s.Copy(y, 0, x, 0, n); err != nil {
		return nil, err
	}
	y.SetReady(s.Record())
	return y, nil
}

func (w *workload) end() error {
	for _, b := range w.buffers {
		b.Release()
	}
	var errs []error
	for _, s := range w.streams {
		errs = append(errs, s.Close())
	}
	for _, used := w.pinned.Usage(); used > 0; _, used = w.pinned.Usage() {
		runtime.Gosched() // releases follow the device's work
	}
	w.pinned.Close()
	return errors.Join(append(errs, w.driver.Close())...)
}

// named reports whether an error says which call failed, where, and why.
func named(err error, why string) bool {
	return status.CodeOf(err) == status.Unavailable && strings.Contains(err.Error(), "device:") && strings.Contains(err.Error(), "cu") && strings.Contains(err.Error(), why)
}

// eachAllocationFails lets each allocation of the workload fail, alone and with the next one. It must fail cleanly or not at all.
func eachAllocationFails(t *testing.T) {
	t.Helper()
	fails := 0
	for _, inARow := range []int64{1, 2, 1000} {
		for n := int64(1); ; n++ {
			before := cudatest.Count(t).Refused
			cudatest.Set(t, "oom_for", inARow)
			cudatest.Set(t, "oom_at", n)
			_, err := runWorkload(t)
			cudatest.Set(t, "oom_at", 0)
			if err != nil && !named(err, "out of memory") {
				t.Errorf("allocation %d: %v", n, err)
			}
			cudatest.Settled(t)
			if err != nil {
				fails++
			}
			if cudatest.Count(t).Refused == before {
				break // there are no more
			}
		}
	}
	if _, err := runWorkload(t); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	cudatest.Check(t)
	say("failed", fails)
}

// eachOperationLoses loses a device at each of the workload's operations.
func eachOperationLoses(t *testing.T) {
	t.Helper()
	fails := 0
	for n := int64(1); ; n++ {
		cudatest.Set(t, "lost_at", n)
		w, err := runWorkload(t)
		cudatest.Set(t, "lost_at", 0)
		if err != nil && !named(err, "unspecified launch failure") {
			t.Errorf("operation %d: %v", n, err)
		}
		cudatest.Set(t, "revive", 0)
		cudatest.Set(t, "revive", 1)
		if err != nil {
			fails++
		}
		if !w.lost && err == nil {
			break
		}
	}
	if _, err := runWorkload(t); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	cudatest.Check(t)
	say("failed", fails)
}

// TestEachFailure runs the workload with every failure, in processes of their own: all devices of one are concerned.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"out of memory", "lost"} {
		for _, env := range []string{"TUTTI_CUDA_CHECK_NO_PEER=0", "TUTTI_CUDA_CHECK_NO_PEER=1"} {
			t.Run(name+" "+env, func(t *testing.T) {
				t.Parallel()
				out, err := child(t, name, env)
				if err != nil || !strings.Contains(out, "failed ") || strings.Contains(out, "failed 0\n") {
					t.Errorf("%v:\n%s", err, out)
				}
			})
		}
	}
}

// TestFirstUse has many goroutines use a device for the first time: there is one context.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	out, err := child(t, "first use")
	if err != nil || !strings.Contains(out, "contexts at most 2") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func firstUse(t *testing.T) {
	t.Helper()
	for range 20 {
		devices := open(t, 2)
		var all sync.WaitGroup
		for g := range 16 {
			all.Go(func() {
				b, err := devices[g%2].Alloc(64)
				if err != nil {
					t.Error(err)
					return
				}
				b.Release()
			})
		}
		all.Wait()
		if n := cudatest.Count(t).Contexts; n != 2 {
			t.Errorf("%d contexts", n)
		}
	}
	say("contexts at most 2")
}
