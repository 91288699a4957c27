//go:build cgo

package batch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/cuda/kernels"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// deviceModel is an instance at a device that copies its input: one operation of the stream, for a kernel.
type deviceModel struct {
	stream tensor.Stream
	behind tensor.Event  // of the last batch
	took   time.Duration // by Execute, and by waits for the device
}

// pace waits until the device has executed the last batch, as a queue does: an instance is at most one batch ahead of its device.
func (m *deviceModel) pace() error {
	if m.behind == nil {
		return nil
	}
	start := time.Now()
	defer func() { m.took += time.Since(start) }()
	return m.behind.Wait()
}

func (m *deviceModel) Stream() tensor.Stream { return m.stream }

func (m *deviceModel) Execute(_ context.Context, b *backends.Batch) error {
	start := time.Now()
	defer func() { m.took += time.Since(start) }()
	in := &b.In[0]
	out, err := b.Alloc(0, in.DType, in.Shape)
	if err != nil {
		return err
	}
	return m.stream.Copy(out.Buf, 0, in.Buf, in.Off, in.Len)
}

func (*deviceModel) Close() error { return nil }

// edges runs one request through steps at a device, each on its own stream.
type edges struct {
	tb     testing.TB
	runner *batch.Runner
	steps  []backends.Instance
	turn   *scheduler.RunLoop
	task   *scheduler.Task
	next   int
}

func newEdges(tb testing.TB, params map[string]string, ragged bool) *edges {
	tb.Helper()
	driver, err := cuda.Open(cudatest.Library(tb))
	if err != nil {
		tb.Fatal(err)
	}
	devices, err := driver.Devices(cuda.Options{Only: []int{0}, Kernels: kernels.Load})
	if err != nil {
		tb.Fatal(err)
	}
	host := tensor.NewPool()
	places := tensor.NewPlaces(host)
	if err := places.Add(devices[0]); err != nil {
		tb.Fatal(err)
	}
	mover, workers := batch.NewMover(places), scheduler.NewWorkers()
	port := []config.Port{{Name: "X", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	sig := &config.Signature{Model: "m", Version: 1, MaxBatch: 8, Inputs: port, Outputs: port}
	if ragged {
		port[0].Unbatched, sig.Scattered = true, []config.Scattered{{Output: 0, Source: 0}}
	}
	padding, err := batch.NewPadding(sig, params)
	if err != nil {
		tb.Fatal(err)
	}
	s := &edges{tb: tb, turn: scheduler.NewRunLoop(workers), runner: batch.NewRunner(batch.Settings{
		Signature: sig, Stats: &telemetry.Model{Name: "m"}, Alloc: host, Log: slog.New(slog.DiscardHandler), Mover: mover, Padding: padding,
	})}
	for range 2 {
		stream, err := devices[0].NewStream("step")
		if err != nil {
			tb.Fatal(err)
		}
		s.steps = append(s.steps, &deviceModel{stream: stream})
	}
	in, err := tensor.New(host, tensor.FP32, tensor.Of(1, 1024))
	if err != nil {
		tb.Fatal(err)
	}
	clear(in.Bytes())
	s.task = &scheduler.Task{
		TaskRequest: scheduler.TaskRequest{Rows: 1, Meta: &infer.Meta{}, Ctx: context.Background(), In: []tensor.Tensor{in}},
		TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(s.task.In)
		workers.Close()
		for _, m := range s.steps {
			if err := m.(*deviceModel).stream.Close(); err != nil {
				tb.Error(err)
			}
		}
		for _, err := range []error{mover.Close(), driver.Close()} {
			if err != nil {
				tb.Error(err)
			}
		}
		cudatest.Check(tb)
	})
	return s
}

// inTime lets the driver execute work as soon as it can, as a GPU does. Otherwise it lags behind, and events are in use for longer.
func inTime(tb testing.TB) {
	tb.Helper()
	cudatest.Set(tb, "late_us", 0)
	tb.Cleanup(func() { cudatest.Set(tb, "late_us", 300) })
}

// step executes the next step, whose output becomes the input of the one after it.
func (s *edges) step() {
	m := s.steps[s.next].(*deviceModel)
	if err := m.pace(); err != nil {
		s.tb.Fatal(err)
	}
	var list scheduler.TaskList
	list.Push(s.task)
	s.runner.Run(m, &list, s.turn)
	m.behind = m.stream.Record()
	s.next = (s.next + 1) % len(s.steps)
	w := list.Pop()
	if w.Err != nil {
		s.tb.Fatal(w.Err)
	}
	w.In[0] = w.Out[0].Move()
}

// TestBudgetDeviceEdge checks that a tensor goes from a step at a device to the next one without a copy or an allocation on the host.
func TestBudgetDeviceEdge(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	cudatest.Require(t)
	inTime(t)
	s := newEdges(t, nil, false)
	for range 300 {
		s.step()
	}
	before := cudatest.Count(t)
	if n := testing.AllocsPerRun(500, s.step); n > 0 {
		t.Errorf("%v allocations per edge, want 0", n)
	}
	e := s.steps[0].(*deviceModel).stream.Record()
	if err := e.Wait(); err != nil {
		t.Fatal(err)
	}
	after := cudatest.Count(t)
	if after.Up != before.Up || after.Down != before.Down || after.Peer != before.Peer {
		t.Errorf("%d copies up, %d down and %d between devices", after.Up-before.Up, after.Down-before.Down, after.Peer-before.Peer)
	}
	if after.Within == before.Within {
		t.Error("the steps did nothing")
	}
}

// TestJoinAtDevice checks that rows of several requests at a device are joined and padded by a kernel, without copies.
func TestJoinAtDevice(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	cudatest.Require(t)
	testJoin(t, newEdges(t, map[string]string{"pad.X": "7", "unpad.X": "X"}, false), 8) // rows that were padded are cut out of the output
}

// TestJoinRaggedAtDevice is TestJoinAtDevice for a ragged input, whose elements are joined, and the output that is split as it was.
func TestJoinRaggedAtDevice(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	cudatest.Require(t)
	testJoin(t, newEdges(t, nil, true), 0)
}

// testJoin runs a batch of eight requests, whose outputs take at most the given number of copies.
func testJoin(t *testing.T, s *edges, cuts uint64) {
	t.Helper()
	stream := s.steps[0].(*deviceModel).stream
	host := tensor.NewPool()
	var list scheduler.TaskList
	var tasks []*scheduler.Task
	lengths := []int64{2, 3, 1, 3, 2, 1, 1, 2}
	for i, n := range lengths {
		at, err := tensor.New(stream, tensor.FP32, tensor.Of(1, n))
		if err != nil {
			t.Fatal(err)
		}
		from, err := tensor.New(host, tensor.FP32, tensor.Of(1, n))
		if err != nil {
			t.Fatal(err)
		}
		for k := range n {
			tensor.Slice[float32](&from)[k] = float32(10*i) + float32(k)
		}
		if err := stream.Copy(at.Buf, 0, from.Buf, 0, from.Len); err != nil {
			t.Fatal(err)
		}
		at.Buf.SetReady(stream.Record())
		from.Release()
		w := &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{Rows: 1, Meta: &infer.Meta{}, Ctx: t.Context(), In: []tensor.Tensor{at}},
			TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
		}
		s.runner.Measure(w)
		list.Push(w)
		tasks = append(tasks, w)
	}
	if err := stream.Record().Wait(); err != nil {
		t.Fatal(err)
	}
	before := cudatest.Count(t)
	s.runner.Run(s.steps[1], &list, s.turn)
	if err := s.steps[1].(*deviceModel).stream.Record().Wait(); err != nil {
		t.Fatal(err)
	}
	after := cudatest.Count(t)
	// The model copies its input.
	if after.Kernels-before.Kernels != 1 || after.Up != before.Up || after.Down != before.Down || after.Within-before.Within > 1+cuts {
		t.Errorf("%+v, before %+v", after, before)
	}
	for i, w := range tasks {
		n := int(lengths[i])
		back, err := host.Alloc(4 * n)
		if err != nil || w.Err != nil {
			t.Fatal(err, w.Err)
		}
		if err := stream.Copy(back, 0, w.Out[0].Buf, w.Out[0].Off, 4*n); err != nil {
			t.Fatal(err)
		}
		if err := stream.Record().Wait(); err != nil {
			t.Fatal(err)
		}
		got := tensor.Tensor{DType: tensor.FP32, Shape: tensor.Of(int64(n)), Buf: back, Len: 4 * n}
		for k, v := range tensor.Slice[float32](&got) {
			if want := float32(10*i) + float32(k); v != want {
				t.Errorf("request %d: element %d is %v, want %v", i, k, v, want)
			}
		}
		back.Release()
		tensor.ReleaseAll(w.In)
		tensor.ReleaseAll(w.Out)
	}
}

// BenchmarkDeviceEdge measures the host's time for a step at a device whose input and output stay there. us/edge is without the model's
// own calls: the batcher, the wait of one stream for another, and the release of the input behind its last use.
func BenchmarkDeviceEdge(b *testing.B) {
	if cudatest.Checking(b) {
		inTime(b)
	}
	s := newEdges(b, nil, false)
	b.ReportAllocs()
	for b.Loop() {
		s.step()
	}
	took := b.Elapsed()
	for _, m := range s.steps {
		took -= m.(*deviceModel).took
	}
	b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(b.N), "us/edge")
}
