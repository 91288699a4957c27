//go:build cgo

package isolate_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// forever is a number of rounds that does not end.
const forever = 1 << 40

// count executes the model loop at an instance: it adds 1 to v, n times.
func (b *bench) count(ctx context.Context, x backends.Instance, v float32, n int64) (float32, error) {
	batch := &backends.Batch{Rows: 1, Requests: []backends.Request{{Ctx: ctx, Rows: 1}}, Out: make([]tensor.Tensor, 1), Allocator: b.pool}
	defer func() {
		tensor.ReleaseAll(batch.In)
		tensor.ReleaseAll(batch.Out)
	}()
	rounds, err := tensor.New(b.pool, tensor.Int64, tensor.Of(1))
	if err != nil {
		return 0, err
	}
	tensor.Slice[int64](&rounds)[0] = n
	batch.In = append(batch.In, rounds)
	start, err := tensor.New(b.pool, tensor.FP32, tensor.Of(1))
	if err != nil {
		return 0, err
	}
	tensor.Slice[float32](&start)[0] = v
	batch.In = append(batch.In, start)
	if err := x.Execute(ctx, batch); err != nil {
		return 0, err
	}
	return tensor.Slice[float32](&batch.Out[0])[0], nil
}

// hang executes at an instance without an end, and returns once the process executes.
func (b *bench) hang(x backends.Instance) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		_, err := b.count(b.Context(), x, 1, forever)
		ended <- err
	}()
	for !isolate.Executing(x) {
		runtime.Gosched()
	}
	return ended
}

// TestRecycle ends the process of an execution that hangs in native code, by several goroutines at once: one of them recycles it, its request
// fails with the given error, another instance notices nothing, and the next request gets a new process.
func TestRecycle(t *testing.T) {
	t.Parallel()
	b := openModel(t, "recycled", file(t, "loop.onnx"))
	defer b.close()
	other, err := b.model.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	x := b.x.(backends.Recycler)
	served := func(x backends.Instance) {
		t.Helper()
		if got, err := b.count(t.Context(), x, 5, 3); got != 8 || err != nil {
			t.Errorf("5 and three rounds: %v, %v", got, err)
		}
	}
	served(x)
	hung := b.hang(x)
	served(other)
	if n := x.Resident(); n < 1<<20 || !x.Alive() {
		t.Errorf("while it executes: alive %v, %d bytes", x.Alive(), n)
	}
	var all sync.WaitGroup
	var ended atomic.Int32
	for range 4 {
		all.Go(func() {
			if x.Recycle(status.Errorf(status.Unavailable, "it is recycled")) {
				ended.Add(1)
			}
		})
	}
	all.Wait()
	if n := ended.Load(); n != 1 {
		t.Errorf("%d calls have recycled the process, want one", n)
	}
	served(other)
	if err := <-hung; status.Text(err) != "it is recycled; send the request again" || status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != time.Second {
		t.Errorf("the request: %v, %v, again after %v", status.CodeOf(err), err, status.RetryAfter(err))
	}
	served(x)
	if !x.Alive() {
		t.Error("there is no process after a request")
	}
}

// TestRecycleClosed closes an instance whose process was recycled just now, and recycles one that is closed.
func TestRecycleClosed(t *testing.T) {
	t.Parallel()
	b := openModel(t, "recycled-closed", file(t, "loop.onnx"))
	x, why := b.x.(backends.Recycler), status.Errorf(status.Unavailable, "it is recycled")
	hung := b.hang(x)
	if !x.Recycle(why) {
		t.Error("there is no process to recycle")
	}
	if err := <-hung; status.CodeOf(err) != status.Unavailable {
		t.Errorf("the request: %v", err)
	}
	b.close() // while another process is started
	if x.Recycle(why) || x.Alive() || x.Resident() != 0 {
		t.Errorf("of a closed instance: alive %v, %d bytes", x.Alive(), x.Resident())
	}
	if n := len(children(t, "recycled-closed")); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestResident checks that memory of a runtime counts, and the tensors of the server do not.
func TestResident(t *testing.T) {
	t.Parallel()
	b := openModel(t, "resident", sumModel())
	defer b.close()
	const floats = 1 << 26
	x := b.x.(backends.Recycler)
	before := x.Resident()
	in, err := tensor.New(b.pool, tensor.Int64, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	tensor.Slice[int64](&in)[0] = floats
	batch := &backends.Batch{Rows: 1, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: b.pool}
	if err := x.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	tensor.ReleaseAll(batch.Out)
	if after := x.Resident(); after < before+floats*4 { // the runtime keeps what it has allocated
		t.Errorf("%d bytes after %d were allocated, %d before", after, floats*4, before)
	}
}

// TestDegraded checks a model that has lost one of two instances, which cannot be started again for as long as the file is missing.
func TestDegraded(t *testing.T) {
	t.Parallel()
	b := openModel(t, "degraded", file(t, "loop.onnx"))
	defer b.close()
	other, err := b.model.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	m := b.model.(backends.Degrader)
	if why, since := m.Degraded(); why != "" || !since.IsZero() {
		t.Errorf("of a sound model: %q since %v", why, since)
	}
	path := filepath.Join(b.dir, "1", "model.onnx")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if !b.x.(backends.Recycler).Recycle(status.Errorf(status.Unavailable, "it is recycled")) {
		t.Fatal("there is no process to recycle")
	}
	why, since := m.Degraded()
	if !strings.HasPrefix(why, "1 of 2 instances cannot serve: ") {
		t.Fatalf("at once: %q since %v", why, since)
	}
	for !strings.Contains(why, "model.onnx") { // until a start has failed
		why, since = m.Degraded()
		runtime.Gosched()
	}
	if !strings.HasPrefix(why, "1 of 2 instances cannot serve: the process of an isolated instance is started again, it ended: ") || since.Before(began) || since.After(time.Now()) {
		t.Errorf("after a start: %q since %v", why, since)
	}
	if err := b.model.(backends.ReadinessChecker).Ready(); err != nil {
		t.Errorf("with an instance: not ready: %v", err)
	}
	if got, err := b.count(t.Context(), other, 5, 3); got != 8 || err != nil {
		t.Errorf("the other instance: %v, %v", got, err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	for why != "" {
		why, _ = m.Degraded()
		runtime.Gosched()
	}
}
