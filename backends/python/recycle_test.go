package python_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// printed receives the log, and closes begun once the model "stuck" has printed that it hangs.
type printed struct {
	once  sync.Once
	begun chan struct{}
}

func (p *printed) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "hangs now") {
		p.once.Do(func() { close(p.begun) })
	}
	return len(text), nil
}

// TestRecycle ends an instance whose execution hangs, with the interpreter's lock: its request fails with the given error, another
// instance notices nothing, and the next request of the instance gets another process.
func TestRecycle(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"forkserver", "spawn"} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			out := &printed{begun: make(chan struct{})}
			s := stuck(t, map[string]string{"where": "value", "lock": "yes", "START_METHOD": start})
			s.Log = slog.New(slog.NewTextHandler(out, nil))
			list := running(t, opened(t, options(t)), s, 2)
			x := list[0].(backends.Recycler)
			hung := make(chan error, 1)
			go func() { hung <- one(x, 1) }()
			<-out.begun
			if n := x.Resident(); n < 1<<20 || !x.Alive() {
				t.Errorf("while it executes: alive %v, %d bytes", x.Alive(), n)
			}
			why := status.Errorf(status.Unavailable, "it is recycled")
			if !x.Recycle(why) {
				t.Fatal("there is no process to recycle")
			}
			if err := <-hung; status.Text(err) != "it is recycled; send the request again" || status.CodeOf(err) != status.Unavailable {
				t.Errorf("the request: %v", err)
			}
			if err := one(list[1], 0); err != nil {
				t.Errorf("at the other instance: %v", err)
			}
			if err := one(x, 0); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			if !x.Alive() {
				t.Error("the new process is not alive")
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			if x.Recycle(why) || x.Alive() || x.Resident() != 0 {
				t.Error("a closed instance has a process")
			}
		})
	}
}

// TestDegraded checks a model that has lost one of two workers, which cannot be started again for as long as model.py is missing.
func TestDegraded(t *testing.T) {
	t.Parallel()
	s := stuck(t, map[string]string{"where": "value", "lock": "no"})
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.ModelDir)); err != nil {
		t.Fatal(err)
	}
	s.ModelDir, s.Dir = dir, filepath.Join(dir, "1")
	b := opened(t, options(t))
	m, err := b.Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var list [2]backends.Instance
	for i := range list {
		if list[i], err = m.NewInstance(t.Context(), tensor.Place{}); err != nil {
			t.Fatal(err)
		}
		defer list[i].Close()
	}
	d := m.(backends.Degrader)
	if why, since := d.Degraded(); why != "" || !since.IsZero() {
		t.Errorf("of a sound model: %q since %v", why, since)
	}
	path := filepath.Join(s.Dir, "model.py")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if !list[0].(backends.Recycler).Recycle(status.Errorf(status.Unavailable, "it is recycled")) {
		t.Fatal("there is no process to recycle")
	}
	for one(list[0], 0) == nil { // until it has ended, and cannot be started
	}
	why, since := d.Degraded()
	for !strings.Contains(why, "model.py") {
		why, since = d.Degraded()
		runtime.Gosched()
	}
	const want = "1 of 2 instances cannot serve: Stub process 'stuck_0_0' is not healthy. Its process is started again, it ended: "
	if !strings.HasPrefix(why, want) || since.Before(began) || since.After(time.Now()) {
		t.Errorf("%q since %v, want %q", why, since, want)
	}
	if err := one(list[1], 0); err != nil {
		t.Errorf("the other instance: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	for err = one(list[0], 0); err != nil; err = one(list[0], 0) { // until it is started again
		if status.CodeOf(err) != status.Unavailable {
			t.Fatalf("an instance that is started again: %v", err)
		}
	}
	if why, _ := d.Degraded(); why != "" {
		t.Errorf("of a model that is sound again: %q", why)
	}
}

// one executes a request with a value and returns its error.
func one(x backends.Instance, value float32) error {
	alloc := tensor.NewPool()
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		return err
	}
	defer in.Release()
	tensor.Slice[float32](&in)[0] = value
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: alloc, Requests: make([]backends.Request, 1)}
	if err := x.Execute(context.Background(), b); err != nil {
		return err
	}
	tensor.ReleaseAll(b.Out)
	return b.Requests[0].Err
}
