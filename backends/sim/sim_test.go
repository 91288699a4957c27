package sim_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a policy that takes all queued tasks.
type everything struct{}

func (everything) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items {
		scratch = append(scratch, int32(i))
	}
	return scheduler.Decision{Take: scratch}
}

// deviceBench is a bench whose model runs at a simulated device.
type deviceBench struct {
	*schedtest.Bench
	mover  *batch.Mover
	device *simdev.Device
	queue  scheduler.Scheduler
}

func newDeviceBench(t *testing.T, sig *config.Signature, params map[string]string, m schedtest.Model) *deviceBench {
	t.Helper()
	b := schedtest.NewBench(t, sig, params)
	machine, err := simdev.New(1, simdev.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	places := tensor.NewPlaces(b.Alloc)
	s := &deviceBench{Bench: b, mover: batch.NewMover(places), device: machine.Devices()[0]}
	if err := places.Add(s.device); err != nil {
		t.Fatal(err)
	}
	pad, err := batch.NewPadding(sig, params)
	if err != nil {
		t.Fatal(err)
	}
	inst, err := sim.Wrap(m, s.device, "m", b.Alloc, &sim.Traffic{})
	if err != nil {
		t.Fatal(err)
	}
	s.queue = queue.New(queue.Settings{
		Runner: batch.NewRunner(batch.Settings{
			Signature: sig, Stats: b.Stats, Alloc: b.Alloc, Padding: pad, Log: slog.New(slog.DiscardHandler), Mover: s.mover,
		}),
		Policy: everything{}, Instances: []backends.Instance{inst}, Workers: b.Workers,
	})
	t.Cleanup(func() {
		for _, err := range []error{s.queue.Close(), s.mover.Close(), machine.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func port(name string, d tensor.DType) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(-1)}
}

func signature(types ...tensor.DType) *config.Signature {
	s := &config.Signature{Model: "m", Version: 1, MaxBatch: 8}
	for i, d := range types {
		n := string(rune('0' + i))
		s.Inputs, s.Outputs = append(s.Inputs, port("INPUT"+n, d)), append(s.Outputs, port("OUTPUT"+n, d))
	}
	return s
}

// run executes the jobs as one batch and copies their outputs to the host.
func (s *deviceBench) run(t *testing.T, jobs ...*schedtest.Job) {
	t.Helper()
	s.Submit(s.queue, jobs...)
	schedtest.Wait(jobs...)
	for _, j := range jobs {
		if j.Err != nil {
			t.Fatal(j.Err)
		}
		for i := range j.Out {
			if o := &j.Out[i]; o.DType != tensor.Bytes && o.Buf.Place() != s.device.Place() {
				t.Errorf("output %d is at %s", i, o.Buf.Place())
			}
			if err := s.mover.ToHost(&j.Out[i], batch.Note{Ledger: &s.Stats.Copies, Tensor: "out", Reason: telemetry.ForResponse}); err != nil {
				t.Fatal(err)
			}
			if err := batch.WaitOnHost(&j.Out[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBatch checks that rows are joined at the device, padded where configured, and that strings stay on the host.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := newDeviceBench(t, signature(tensor.FP32, tensor.Int64, tensor.Bytes),
		map[string]string{"pad.INPUT0": "-1.5", "unpad.OUTPUT0": "INPUT0"}, func(b *backends.Batch) error {
			if got, want := tensor.Slice[float32](&b.In[0]), []float32{1, 2, -1.5, 3, 4, 5, 6, 7, 8}; !slices.Equal(got, want) {
				t.Errorf("gathered %v, want %v", got, want)
			}
			return schedtest.Copy(b)
		})
	text := func(words ...string) tensor.Tensor {
		var data []byte
		for _, w := range words {
			data = tensor.AppendBytes(data, w)
		}
		x, err := tensor.NewBytes(s.Alloc, tensor.Of(int64(len(words)), 1), len(data))
		if err != nil {
			t.Fatal(err)
		}
		copy(x.Bytes(), data)
		return x
	}
	a := s.Job(1, s.Floats([]int64{1, 2}, 1, 2), s.Ints([]int64{1, 1}, 10), text("a"))
	b := s.Job(2, s.Floats([]int64{2, 3}, 3, 4, 5, 6, 7, 8), s.Ints([]int64{2, 1}, 20, 30), text("bc", "d"))
	s.run(t, a, b)
	if got := tensor.Slice[float32](&a.Out[0]); !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("unpadded %v", got)
	}
	if got := tensor.Slice[float32](&b.Out[0]); !slices.Equal(got, []float32{3, 4, 5, 6, 7, 8}) {
		t.Errorf("unpadded %v", got)
	}
	if got := tensor.Slice[int64](&b.Out[1]); !slices.Equal(got, []int64{20, 30}) {
		t.Errorf("integers %v", got)
	}
	if got := string(b.Out[2].Bytes()); got != "\x02\x00\x00\x00bc\x01\x00\x00\x00d" {
		t.Errorf("strings %q", got)
	}
	a.Release()
	b.Release()
	host, device := tensor.Place{}, s.device.Place()
	if diff := cmp.Diff([]telemetry.Copy{
		{Tensor: "INPUT0", From: host, To: device, Reason: telemetry.ForDevice, Count: 3, Bytes: 32},
		{Tensor: "INPUT1", From: host, To: device, Reason: telemetry.ForDevice, Count: 2, Bytes: 24},
		{Tensor: "out", From: device, To: host, Reason: telemetry.ForResponse, Count: 4, Bytes: 56},
	}, s.Stats.Copies.List()); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
}

// TestPaddingInside checks that padding in an inner dimension is removed at the device.
func TestPaddingInside(t *testing.T) {
	t.Parallel()
	sig := signature(tensor.FP32)
	sig.Inputs[0].Dims, sig.Outputs[0].Dims = tensor.Of(2, -1, 2), tensor.Of(2, -1, 2)
	s := newDeviceBench(t, sig, map[string]string{"pad.INPUT0": "0", "unpad.OUTPUT0": "INPUT0"}, func(b *backends.Batch) error {
		if got, want := tensor.Slice[float32](&b.In[0]), []float32{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12}; !slices.Equal(got, want) {
			t.Errorf("gathered %v, want %v", got, want)
		}
		return schedtest.Share(b)
	})
	short := s.Job(1, s.Floats([]int64{1, 2, 1, 2}, 1, 2, 3, 4))
	long := s.Job(1, s.Floats([]int64{1, 2, 2, 2}, 5, 6, 7, 8, 9, 10, 11, 12))
	s.run(t, short, long)
	if got := tensor.Slice[float32](&short.Out[0]); !slices.Equal(got, []float32{1, 2, 3, 4}) {
		t.Errorf("unpadded %v", got)
	}
	short.Release()
	long.Release()
}

// TestFailures checks that after a panic of the model its requests run one by one, and only the faulty one fails.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := newDeviceBench(t, signature(tensor.FP32), nil, func(b *backends.Batch) error {
		if v := tensor.Slice[float32](&b.In[0]); slices.Contains(v, 2) {
			panic("two")
		}
		return schedtest.Copy(b)
	})
	var jobs []*schedtest.Job
	for i := range 3 {
		jobs = append(jobs, s.Job(1, s.Floats([]int64{1, 1}, float32(i+1))))
	}
	s.Submit(s.queue, jobs...)
	schedtest.Wait(jobs...)
	for i, j := range jobs {
		if (j.Err != nil) != (i == 1) {
			t.Errorf("job %d: %v", i, j.Err)
		}
		tensor.ReleaseAll(j.Out)
	}
}

// load opens the backend and loads a model.
func load(t *testing.T, values map[string]string, text string) (backends.Model, error) {
	t.Helper()
	places := tensor.NewPlaces(tensor.NewPool())
	b, err := sim.NewFactory(identity.NewFactory()).New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: values, Places: places})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if places.Any() {
			t.Error("a closed backend has left its devices")
		}
	})
	cfg, err := config.Parse("config.pbtxt", []byte(text+`
max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`))
	if err != nil {
		t.Fatal(err)
	}
	return b.Load(t.Context(), backends.Settings{Model: "m", Version: 1, Config: cfg, Alloc: places.At(tensor.Place{}), Log: slog.New(slog.DiscardHandler)})
}

const model = `backend: "sim" parameters { key: "sim.backend" value { string_value: "identity" } }`

func TestLoad(t *testing.T) {
	t.Parallel()
	m, err := load(t, map[string]string{"devices": "2", "latency_us": "5", "bandwidth_mb": "100", "memory_mb": "1"}, model)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if p, ok := m.(backends.DeviceModel); !ok || !slices.Equal(p.Places(), []tensor.Place{simdev.Place(0), simdev.Place(1)}) {
		t.Errorf("not at both devices: %v", m)
	}
	if _, err := m.NewInstance(context.Background(), tensor.Place{}); status.CodeOf(err) != status.Unsupported {
		t.Errorf("on the host: %v", err)
	}
	inst, err := m.NewInstance(t.Context(), simdev.Place(1))
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := inst.(backends.DeviceInstance); !ok || p.Stream().Place() != simdev.Place(1) {
		t.Error("the instance is elsewhere")
	}
	for range 2 {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		values map[string]string
		text   string
		want   string
	}{
		{"off", nil, model, "model 'm': backend 'sim' is off, expected a GPU, or --backend-config=sim,devices=N"},
		{"many", map[string]string{"devices": "65"}, model, "'devices' is '65', expected a number from 0 to 64"},
		{"no number", map[string]string{"devices": "1", "latency_us": "x"}, model, "'latency_us' is 'x'"},
		{"no truth", map[string]string{"devices": "1", "real": "x"}, model, "'real' is 'x', expected true or false"},
		{"no backend", map[string]string{"devices": "1"}, `backend: "sim"`, "parameter 'sim.backend' is '', expected a backend: [identity]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, err := load(t, tc.values, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestRequestOutputs checks that outputs of single requests stay at the device, and that their readers wait for them.
func TestRequestOutputs(t *testing.T) {
	t.Parallel()
	s := newDeviceBench(t, signature(tensor.FP32), nil, func(b *backends.Batch) error {
		at := 0
		for i := range b.Requests {
			q := &b.Requests[i]
			out, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(int64(q.Rows), 1))
			if err != nil {
				return err
			}
			at += copy(tensor.Slice[float32](&out), tensor.Slice[float32](&b.In[0])[at:at+q.Rows])
			q.Out = []tensor.Tensor{out}
		}
		return nil
	})
	for range 20 {
		x, y := s.Job(1, s.Floats([]int64{1, 1}, 7)), s.Job(2, s.Floats([]int64{2, 1}, 8, 9))
		s.run(t, x, y)
		if got := append(slices.Clone(tensor.Slice[float32](&x.Out[0])), tensor.Slice[float32](&y.Out[0])...); !slices.Equal(got, []float32{7, 8, 9}) {
			t.Errorf("got %v", got)
		}
		x.Release()
		y.Release()
	}
}

// TestShapeTensors checks that shape tensors at a device, whose values the host cannot read, are never batched with others.
func TestShapeTensors(t *testing.T) {
	t.Parallel()
	sig := signature(tensor.FP32, tensor.Int64)
	sig.Inputs[1].ShapeTensor, sig.Outputs[1].ShapeTensor = true, true
	s := newDeviceBench(t, sig, nil, schedtest.Copy)
	var jobs []*schedtest.Job
	for i := range 4 {
		x := s.Ints([]int64{1}, int64(i/2))
		if i > 0 {
			stream, err := s.device.NewStream("test")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.mover.ToDevice(&x, stream, batch.Note{Ledger: &s.Stats.Copies}); err != nil {
				t.Fatal(err)
			}
			if err := stream.Close(); err != nil {
				t.Fatal(err)
			}
		}
		jobs = append(jobs, s.Job(1, s.Floats([]int64{1, 1}, float32(i)), x))
	}
	s.run(t, jobs...)
	for i, j := range jobs {
		if got := tensor.Slice[int64](&j.Out[1]); !slices.Equal(got, []int64{int64(i / 2)}) {
			t.Errorf("request %d has shape %v", i, got)
		}
		j.Release()
	}
}
