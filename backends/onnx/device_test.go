//go:build cgo

package onnx

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// gpus is a machine with two GPUs of the checking driver, and a backend on the stand-in.
type gpus struct {
	tb      testing.TB
	devices []*cuda.Device
	host    *tensor.Pool
	b       *backend
	lost    bool // a device was lost in the test
}

// openGPUs opens the machine. Its end fails the test on faults and leaks of the driver and of the stand-in. Tests that use it do not
// run in parallel: counters and the runtime's allocators are those of the process.
func openGPUs(tb testing.TB) *gpus {
	tb.Helper()
	driver, err := cuda.Open(cudatest.Library(tb))
	if err != nil {
		tb.Fatal(err)
	}
	g := &gpus{tb: tb, host: tensor.NewPool()}
	if g.devices, err = driver.Devices(cuda.Options{}); err != nil {
		tb.Fatal(err)
	}
	places := tensor.NewPlaces(g.host)
	for _, d := range g.devices {
		if err := places.Add(d); err != nil {
			tb.Fatal(err)
		}
	}
	b, err := NewFactory().New(backends.Options{Config: map[string]string{"library-path": onnxtest.Library(tb)}, Places: places})
	if err != nil {
		tb.Fatal(err)
	}
	g.b = b.(*backend)
	tb.Cleanup(func() {
		_ = b.Close()
		if err := driver.Close(); err != nil && !g.lost {
			tb.Error(err)
		}
		onnxtest.Check(tb)
		cudatest.Check(tb)
		for _, name := range []string{"sessions", "values"} {
			if n := onnxtest.Count(tb, name); n != 0 {
				tb.Errorf("%d %s are left", n, name)
			}
		}
	})
	return g
}

const onGPU = "instance_group { kind: KIND_GPU gpus: 0 } "

func (g *gpus) load(file, pbtxt string) (backends.Model, error) {
	g.tb.Helper()
	cfg := parseConfig(g.tb, pbtxt)
	cfg.DefaultModelFilename = file
	return g.b.Load(g.tb.Context(), backends.Settings{Model: "m", Dir: "testdata", ModelDir: "testdata", Config: cfg, Instances: 1})
}

// runner is an instance at a GPU with its model.
type runner struct {
	*gpus
	m backends.Model
	x backends.DeviceInstance
	s *cuda.Stream
}

func (g *gpus) runner(file, pbtxt string) *runner {
	g.tb.Helper()
	m, err := g.load(file, pbtxt)
	if err != nil {
		g.tb.Fatal(err)
	}
	x, err := m.NewInstance(g.tb.Context(), g.devices[0].Place())
	if err != nil {
		g.tb.Fatal(err)
	}
	d := x.(backends.DeviceInstance)
	return &runner{g, m, d, d.Stream().(*cuda.Stream)}
}

func (r *runner) close() {
	r.tb.Helper()
	if err := errors.Join(r.x.Close(), r.m.Close()); err != nil {
		r.tb.Error(err)
	}
}

// at returns a tensor at the device of a stream, filled by a stream of its own as another model's output is.
func (r *runner) at(v backendtest.Value) tensor.Tensor {
	r.tb.Helper()
	host := v.Tensor(r.tb, r.host)
	if v.DType == tensor.Bytes {
		return host
	}
	defer host.Release()
	other, err := r.s.Device().Open("other", 0)
	if err != nil {
		r.tb.Fatal(err)
	}
	t, err := tensor.New(other, v.DType, host.Shape)
	if err == nil {
		err = other.Copy(t.Buf, 0, host.Buf, host.Off, host.Len)
	}
	if err == nil {
		err = other.Record().WaitOn(r.s)
	}
	if err != nil {
		r.tb.Fatal(err)
	}
	t.Buf.SetReady(other.Record())
	if err := other.Close(); err != nil {
		r.tb.Fatal(err)
	}
	clear(host.Bytes()) // it is reused
	return t
}

// batch returns a batch as the scheduler makes it.
func (r *runner) batch(in ...backendtest.Value) *backends.Batch {
	b := &backends.Batch{
		Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(r.m.Signature().Outputs)),
		Allocator: r.s, HostAllocator: r.host, Stream: r.s,
	}
	for _, v := range in {
		b.In = append(b.In, r.at(v))
	}
	return b
}

// execute runs a batch and records its end, as the scheduler does. It releases the inputs.
func (r *runner) execute(b *backends.Batch) error {
	err := r.x.Execute(r.tb.Context(), b)
	end := r.s.Record()
	for i := range b.Out {
		if b.Out[i].Present() && b.Out[i].Buf.Place().Kind == tensor.Device && b.Out[i].Buf.Ready() == nil {
			b.Out[i].Buf.SetReady(end)
		}
	}
	for i := range b.In {
		if b.In[i].Buf.Place().Kind == tensor.Device {
			b.In[i].Buf.UsedUntil(end)
		}
	}
	tensor.ReleaseAll(b.In)
	if err != nil {
		tensor.ReleaseAll(b.Out)
	}
	return err
}

// read returns the content of an output, copied by a stream of its own as the next model would read it, and releases the output.
func (r *runner) read(t *tensor.Tensor) []byte {
	r.tb.Helper()
	defer t.Release()
	if t.DType == tensor.Bytes {
		return bytes.Clone(t.Bytes())
	}
	if t.Buf.Place() != r.s.Place() {
		r.tb.Errorf("the output is at %s, want %s", t.Buf.Place(), r.s.Place())
		return nil
	}
	to, err := r.host.Alloc(t.Len)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer to.Release()
	other, err := r.s.Device().Open("reader", 0)
	if err != nil {
		r.tb.Fatal(err)
	}
	err = t.Buf.Ready().WaitOn(other)
	if err == nil {
		err = other.Copy(to, 0, t.Buf, t.Off, t.Len)
	}
	if err == nil {
		err = errors.Join(other.Record().Wait(), other.Close())
	}
	if err != nil {
		r.tb.Fatal(err)
	}
	return bytes.Clone(to.Bytes())
}

// onHost returns the outputs of the same file on the CPU.
func onHost(tb testing.TB, file, pbtxt string, in ...backendtest.Value) [][]byte {
	tb.Helper()
	m, err := loadFile(tb, openBackend(tb, nil), file, pbtxt)
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	defer x.Close()
	pool := tensor.NewPool()
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: pool}
	for _, v := range in {
		b.In = append(b.In, v.Tensor(tb, pool))
	}
	if err := x.Execute(tb.Context(), b); err != nil {
		tb.Fatal(err)
	}
	var all [][]byte
	for i := range b.Out {
		all = append(all, bytes.Clone(b.Out[i].Bytes()))
		b.Out[i].Release()
	}
	tensor.ReleaseAll(b.In)
	return all
}

func floats(dims []int64, n int, from float32) backendtest.Value {
	elems := make([]float32, n)
	for i := range elems {
		elems[i] = from + float32(i%7)
	}
	return backendtest.Of(tensor.FP32, dims, elems...)
}

// TestGPU checks that the outputs at a GPU are those of the CPU, with outputs in memory of the batch and of the runtime, of fixed and
// dynamic shape, FP16 and BYTES, and ports that the session has on the host.
func TestGPU(t *testing.T) {
	g := openGPUs(t)
	const standinHost = `parameters { key: "session.standin_host" value { string_value: "HOST" } } `
	for name, tc := range map[string]struct {
		file, pbtxt string
		in          []backendtest.Value
	}{
		"known shape":            {"mlp.onnx", "max_batch_size: 8 ", []backendtest.Value{floats([]int64{3, 16}, 48, 1)}},
		"shape of the data":      {"nonzero.onnx", "", []backendtest.Value{floats([]int64{9}, 9, 0)}},
		"an input and a weight":  {"through.onnx", "", []backendtest.Value{floats([]int64{5}, 5, 2)}},
		"wrong name of a size":   {"liar.onnx", "", []backendtest.Value{floats([]int64{6}, 6, 0)}},
		"no elements":            {"through.onnx", "", []backendtest.Value{floats([]int64{0}, 0, 0)}},
		"scalar":                 {"scalar.onnx", "", []backendtest.Value{floats([]int64{1}, 1, 2), floats([]int64{1}, 1, 3)}},
		"input on the host":      {"fill.onnx", strings.ReplaceAll(standinHost, "HOST", "shape"), []backendtest.Value{backendtest.Of(tensor.Int64, []int64{1}, int64(12))}},
		"output on the host":     {"nonzero.onnx", strings.ReplaceAll(standinHost, "HOST", "y"), []backendtest.Value{floats([]int64{9}, 9, 0)}},
		"passed on the host":     {"through.onnx", strings.ReplaceAll(standinHost, "HOST", "x"), []backendtest.Value{floats([]int64{5}, 5, 2)}},
		"both, and of the batch": {"mlp.onnx", "max_batch_size: 8 " + strings.ReplaceAll(standinHost, "HOST", "x,y"), []backendtest.Value{floats([]int64{2, 16}, 32, 1)}},
		"arena of the runtime":   {"nonzero.onnx", `parameters { key: "gpu_mem_limit" value { string_value: "1000000" } } `, []backendtest.Value{floats([]int64{9}, 9, 0)}},
		"half and strings": {"pick.onnx", "", []backendtest.Value{
			{DType: tensor.Bool, Dims: []int64{3}, Data: []byte{1, 0, 1}},
			{DType: tensor.FP16, Dims: []int64{3}, Data: []byte{0, 0x3c, 0, 0x40, 0, 0x42}},
			{DType: tensor.BF16, Dims: []int64{3}, Data: []byte{0x80, 0x3f, 0, 0x40, 0x40, 0x40}},
			{DType: tensor.Bool, Dims: []int64{3}, Data: []byte{1, 1, 0}},
			backendtest.Strings([]int64{3}, "a", "", "ccc"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := onHost(t, tc.file, strings.ReplaceAll(tc.pbtxt, "gpu_mem_limit", "session.none"), tc.in...)
			g := &gpus{tb: t, devices: g.devices, host: g.host, b: g.b}
			r := g.runner(tc.file, onGPU+tc.pbtxt)
			defer r.close()
			before := onnxtest.Count(t, "synchronized")
			for range 4 {
				b := r.batch(tc.in...)
				if err := r.execute(b); err != nil {
					t.Fatal(err)
				}
				for i := range b.Out {
					if got := r.read(&b.Out[i]); !bytes.Equal(got, want[i]) {
						t.Errorf("output %d: %v, want %v", i, got, want[i])
					}
				}
			}
			if n := onnxtest.Count(t, "synchronized") - before; n != 0 {
				t.Errorf("%d runs waited for the device", n)
			}
		})
	}
}

// TestGPUOutputsOutlive checks that outputs in memory of the runtime may be read, and released, after the model is unloaded.
func TestGPUOutputsOutlive(t *testing.T) {
	g := openGPUs(t)
	for name, pbtxt := range map[string]string{"pool": "", "arena": `parameters { key: "gpu_mem_limit" value { string_value: "1000000" } }`} {
		t.Run(name, func(t *testing.T) {
			in := floats([]int64{9}, 9, 0)
			want := onHost(t, "nonzero.onnx", "", in)
			r := (&gpus{tb: t, devices: g.devices, host: g.host, b: g.b}).runner("nonzero.onnx", onGPU+pbtxt)
			b := r.batch(in)
			if err := r.execute(b); err != nil {
				t.Fatal(err)
			}
			r.close()
			if got := r.read(&b.Out[0]); !bytes.Equal(got, want[0]) {
				t.Errorf("output %v, want %v", got, want[0])
			}
		})
	}
}

// TestGPUOrder checks that the event after a run is behind it, although nothing but the runtime has put work into the stream, and that
// memory of the runtime is not reused before the last reader has read it.
func TestGPUOrder(t *testing.T) {
	g := openGPUs(t)
	in := floats([]int64{9}, 9, 0)
	want := onHost(t, "nonzero.onnx", "", in)[0]
	r := g.runner("nonzero.onnx", onGPU+`parameters { key: "gpu_mem_limit" value { string_value: "1000000" } }`)
	defer r.close()
	b := r.batch(in)
	b.In[0].Retain()
	kept := b.In[0]
	if err := r.execute(b); err != nil {
		t.Fatal(err)
	}
	if got := r.read(&b.Out[0]); !bytes.Equal(got, want) { // waits
		t.Errorf("first %v, want %v", got, want)
	}
	reader, err := r.s.Device().Open("late reader", 0)
	if err != nil {
		t.Fatal(err)
	}
	to, err := g.host.Alloc(len(want))
	if err != nil {
		t.Fatal(err)
	}
	b.In = []tensor.Tensor{kept}
	if err := r.execute(b); err != nil {
		t.Fatal(err)
	}
	out := &b.Out[0]
	if err := errors.Join(out.Buf.Ready().WaitOn(reader), reader.Copy(to, 0, out.Buf, out.Off, out.Len)); err != nil {
		t.Fatal(err)
	}
	out.Release() // before the copy has been made
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if got := to.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("second %v, want %v", got, want)
	}
	to.Release()
}

// TestGPUGraphs checks that runs of the same shapes replay a captured graph, with the inputs and outputs of each batch, and that further
// shapes are run without one.
func TestGPUGraphs(t *testing.T) {
	r := openGPUs(t).runner("mlp.onnx", onGPU+`max_batch_size: 64 parameters { key: "enable_cuda_graph" value { string_value: "1" } }`)
	defer r.close()
	captures, replays := onnxtest.Count(t, "captures"), onnxtest.Count(t, "replays")
	var held []tensor.Tensor
	for round := range 3 {
		for rows := int64(1); rows <= maxGraphs+2; rows++ {
			in := floats([]int64{rows, 16}, int(rows)*16, float32(round))
			b := r.batch(in)
			b.Rows = int(rows)
			if err := r.execute(b); err != nil {
				t.Fatal(err)
			}
			held = append(held, b.Out[0].Retain()) // later runs must not write over it
			if got, want := r.read(&b.Out[0]), onHost(t, "mlp.onnx", "max_batch_size: 64", in)[0]; !bytes.Equal(got, want) {
				t.Errorf("round %d, %d rows: %v, want %v", round, rows, got, want)
			}
		}
	}
	tensor.ReleaseAll(held)
	if c, p := onnxtest.Count(t, "captures")-captures, onnxtest.Count(t, "replays")-replays; c != maxGraphs || p != 2*maxGraphs {
		t.Errorf("%d graphs captured and %d replayed, want %d and %d", c, p, maxGraphs, 2*maxGraphs)
	}
}

// TestGPUGraphsRefused checks the error for a model whose outputs cannot have fixed addresses.
func TestGPUGraphsRefused(t *testing.T) {
	g := openGPUs(t)
	m, err := g.load("nonzero.onnx", onGPU+`parameters { key: "enable_cuda_graph" value { string_value: "1" } }`)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.NewInstance(t.Context(), g.devices[0].Place()); status.CodeOf(err) != status.Unsupported ||
		!strings.Contains(err.Error(), "output 'y': CUDA graphs need every output at the GPU, with a shape that follows from those of the inputs: remove enable_cuda_graph") {
		t.Errorf("NewInstance: %v", err)
	}
}

// TestGPUAllocatesNothing checks that a run at a GPU, and the release of its output, allocate nothing.
func TestGPUAllocatesNothing(t *testing.T) {
	g := openGPUs(t)
	for name, file := range map[string]string{"memory of the batch": "mlp.onnx", "memory of the runtime": "nonzero.onnx"} {
		t.Run(name, func(t *testing.T) {
			r := (&gpus{tb: t, devices: g.devices, host: g.host, b: g.b}).runner(file, onGPU)
			defer r.close()
			in := floats([]int64{1, 16}, 16, 1)
			if file == "nonzero.onnx" {
				in = floats([]int64{16}, 16, 1)
			}
			b := r.batch(in)
			n := testing.AllocsPerRun(100, func() {
				if err := r.x.Execute(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				b.Out[0].Buf.UsedUntil(r.s.Record())
				b.Out[0].Release()
			})
			if n != 0 {
				t.Errorf("%v allocations per run, want none", n)
			}
			b.In[0].Buf.UsedUntil(r.s.Record())
			tensor.ReleaseAll(b.In)
		})
	}
}

// TestGPUInstances checks that every instance has a session and a stream of its own, at both GPUs, and that the provider gets it.
func TestGPUInstances(t *testing.T) {
	g := openGPUs(t)
	before := onnxtest.Count(t, "sessions")
	m, err := g.load("mlp.onnx", `instance_group { kind: KIND_GPU gpus: [0, 1] count: 2 } instance_group { kind: KIND_CPU }`)
	if err != nil {
		t.Fatal(err)
	}
	places := m.(backends.DeviceModel).Places()
	var open []backends.Instance
	for _, at := range []tensor.Place{g.devices[0].Place(), g.devices[0].Place(), g.devices[1].Place(), g.devices[1].Place(), {}} {
		if !slices.Contains(places, at) {
			t.Errorf("places %v lack %s", places, at)
		}
		x, err := m.NewInstance(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, x)
	}
	if n := onnxtest.Count(t, "sessions") - before; n != 4 {
		t.Errorf("%d sessions with CUDA, want 4", n)
	}
	if backends.StreamOf(open[0]) == backends.StreamOf(open[1]) || backends.StreamOf(open[4]) != nil {
		t.Error("instances share a stream, or the one on the host has one")
	}
	for _, x := range open {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestGPUOptions checks the options that reach the providers.
func TestGPUOptions(t *testing.T) {
	g := openGPUs(t)
	m, err := g.load("mlp.onnx", onGPU+`parameters { key: "gpu_mem_limit" value { string_value: "777777" } }
		parameters { key: "arena_extend_strategy" value { string_value: "1" } } parameters { key: "cudnn_conv_algo_search" value { string_value: "2" } }
		optimization { execution_accelerators {
			gpu_execution_accelerator { name: "tensorrt" parameters { key: "precision_mode" value: "BF16" } parameters { key: "max_workspace_size_bytes" value: "65536" }
				parameters { key: "trt_engine_cache_enable" value: "true" } parameters { key: "trt_engine_cache_path" value: "/cache" } }
			gpu_execution_accelerator { name: "cuda" parameters { key: "use_ep_level_unified_stream" value: "1" } } } }`)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	text, _ := onnxtest.Report(t)
	for _, want := range []string{
		"cuda gpu_mem_limit=777777", "cuda arena_extend_strategy=kSameAsRequested", "cuda cudnn_conv_algo_search=DEFAULT",
		"cuda use_ep_level_unified_stream=1", "cuda has_user_compute_stream=1", "tensorrt trt_bf16_enable=1", "tensorrt trt_max_workspace_size=65536",
		"tensorrt trt_engine_cache_enable=1", "tensorrt trt_engine_cache_path=/cache", "tensorrt has_user_compute_stream=1",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the providers did not get %s:\n%s", want, text)
		}
	}
}
