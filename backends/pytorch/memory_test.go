//go:build cgo

package pytorch_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// one is the configuration of a model with one input x and one output y of any length.
const one = `input { name: "x" data_type: TYPE_FP32 dims: -1 } output { name: "y" data_type: TYPE_FP32 dims: -1 }`

// TestChain runs embed.pt twice in a row, at instances with a stream each: the second reads the outputs of the first in PyTorch's
// memory, and so does a third stream, which is late. Everything is released at once, and the first instance executes again. A release
// that gave memory back too early would be a fault of the driver.
func TestChain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "embed.pt", embed+onGPU))
	first, second := instanceAt(t, model, 0), instanceAt(t, model, 0)
	reader, err := m.devices[0].Open("reader", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	half := func(x float32) float32 { return x/2 + 2 }
	var late, final []tensor.Tensor
	const rounds = 20
	for round := range rounds {
		b := deviceBatch(t, first, model, []backendtest.Value{fp32([]int64{1, 3}, float32(round), 1, 2), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 3)})
		if err := runBatch(t, first, b); err != nil {
			t.Fatal(err)
		}
		late = append(late, copyBy(t, reader, &b.Out[0]))
		next := deviceBatch(t, second, model, nil)
		for _, from := range []*tensor.Tensor{&b.Out[0], &b.In[1]} {
			if err := from.Buf.Ready().WaitOn(second.Stream()); err != nil {
				t.Fatal(err)
			}
			next.In = append(next.In, from.Retain())
		}
		tensor.ReleaseAll(b.Out)
		tensor.ReleaseAll(b.In)
		if err := runBatch(t, second, next); err != nil {
			t.Fatal(err)
		}
		tensor.ReleaseAll(next.In)
		final = append(final, copyBy(t, reader, &next.Out[0]))
		tensor.ReleaseAll(next.Out)
	}
	for round := range rounds {
		x := float32(round)
		want := []backendtest.Value{fp32([]int64{1, 3}, half(x), 2.5, 3), fp32([]int64{1, 3}, half(half(x)), half(2.5), half(3))}
		got := []backendtest.Value{download(t, m.devices[0], &late[round]), download(t, m.devices[0], &final[round])}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
	}
}

// copyBy returns a copy that a stream will make once the tensor is ready.
func copyBy(tb testing.TB, s tensor.Stream, from *tensor.Tensor) tensor.Tensor {
	tb.Helper()
	if err := from.Buf.Ready().WaitOn(s); err != nil {
		tb.Fatal(err)
	}
	buf, err := s.Alloc(from.Len)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Copy(buf, 0, from.Buf, from.Off, from.Len); err != nil {
		tb.Fatal(err)
	}
	buf.SetReady(s.Record())
	return tensor.Tensor{DType: from.DType, Shape: from.Shape, Buf: buf, Len: from.Len}
}

// TestStateInOrder checks that instances that share a model which changes its buffers execute one after another on the device.
func TestStateInOrder(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "count.pt", `input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 }`+onGPU))
	const each = 10
	var wait sync.WaitGroup
	for range 2 {
		x := instanceAt(t, model, 0)
		wait.Go(func() {
			for range each {
				if _, err := m.executeAt(t, x, model, fp32([]int64{1}, 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	got, err := m.executeAt(t, instanceAt(t, model, 0), model, fp32([]int64{1}, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]backendtest.Value{fp32([]int64{1}, 2*each+1)}, got); diff != "" {
		t.Errorf("the count (-want +got):\n%s", diff)
	}
}

// TestPassThrough checks that an input which the model returns is the output, without a copy, and that a model that writes to its
// input gets a copy.
func TestPassThrough(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	for file, shared := range map[string]bool{"identity.pt": true, "writes.pt": false} {
		model := m.load(t, settings(t, file, one+onGPU))
		x := instanceAt(t, model, 0)
		b := deviceBatch(t, x, model, []backendtest.Value{fp32([]int64{2}, 1, 2)})
		if err := runBatch(t, x, b); err != nil {
			t.Fatal(err)
		}
		if (b.Out[0].Buf == b.In[0].Buf) != shared {
			t.Errorf("%s: the output shares the input's memory: %v, want %v", file, !shared, shared)
		}
		in, out := download(t, m.devices[0], &b.In[0]), download(t, m.devices[0], &b.Out[0])
		want := fp32([]int64{2}, 1, 2)
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s: the input changed (-want +got):\n%s", file, diff)
		}
		if !shared {
			want = fp32([]int64{2}, 2, 3)
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s: the output (-want +got):\n%s", file, diff)
		}
	}
}

// TestOutputsOutlive checks that outputs at a GPU are valid after their instance, model and stream are closed.
func TestOutputsOutlive(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "embed.pt", embed+onGPU))
	x := instanceAt(t, model, 0)
	b := deviceBatch(t, x, model, []backendtest.Value{fp32([]int64{1, 3}, 0, 1, 2), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 3)})
	if err := runBatch(t, x, b); err != nil {
		t.Fatal(err)
	}
	tensor.ReleaseAll(b.In)
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := model.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(fp32([]int64{1, 3}, 2, 2.5, 3), download(t, m.devices[0], &b.Out[0])); diff != "" {
		t.Errorf("output after the end of the instance (-want +got):\n%s", diff)
	}
	tensor.ReleaseAll(b.Out)
	if err := x.Execute(t.Context(), &backends.Batch{}); status.CodeOf(err) != status.Unavailable {
		t.Errorf("Execute of a closed instance = %v", err)
	}
}

func TestCancelledAtGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "identity.pt", one+onGPU))
	x := instanceAt(t, model, 0)
	b := deviceBatch(t, x, model, []backendtest.Value{fp32([]int64{1}, 1)})
	defer tensor.ReleaseAll(b.In)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Execute(ctx, b); status.CodeOf(err) != status.Cancelled {
		t.Errorf("Execute with a cancelled context = %v", err)
	}
}

// TestErrorsAtGPU checks that a request that PyTorch refuses fails alone.
func TestErrorsAtGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "embed.pt", embed+onGPU))
	x := instanceAt(t, model, 0)
	row := fp32([]int64{1, 3}, 0, 1, 2)
	index := func(i int64) backendtest.Value { return backendtest.Of(tensor.Int64, []int64{1, 1}, i) }
	if _, err := m.executeAt(t, x, model, row, index(10)); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("an index outside the table: %v", err)
	}
	if got, err := m.executeAt(t, x, model, row, index(3)); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 3}, 2, 2.5, 3)) {
		t.Errorf("the request after it = %v, %v", got, err)
	}
	host := tensor.NewPool()
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 2), Stream: x.Stream(), Allocator: x.Stream()}
	b.In = []tensor.Tensor{row.Tensor(t, host), index(3).Tensor(t, host)}
	defer tensor.ReleaseAll(b.In)
	if err := x.Execute(t.Context(), b); err == nil || !strings.Contains(err.Error(), "expected a tensor on device:0, got one on host") {
		t.Errorf("inputs on the host: %v", err)
	}
}

// TestPlaces checks which devices a model of several instance groups runs at, and what it refuses.
func TestPlaces(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 2, nil)
	model := m.load(t, settings(t, "identity.pt", one+` instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU gpus: 1 }`))
	want := []tensor.Place{{}, gpuPlace(1)}
	if diff := cmp.Diff(want, model.(backends.DeviceModel).Places()); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	x := fp32([]int64{2}, 1, 2)
	if got, err := run(t, model, x); err != nil || !cmp.Equal([]backendtest.Value{x}, got) {
		t.Errorf("on the host: %v, %v", got, err)
	}
	if got, err := m.executeAt(t, instanceAt(t, model, 1), model, x); err != nil || !cmp.Equal([]backendtest.Value{x}, got) {
		t.Errorf("at GPU 1: %v, %v", got, err)
	}
	if inst, err := model.NewInstance(t.Context(), gpuPlace(0)); err == nil || !strings.Contains(err.Error(), "no instance group for device:0") {
		t.Errorf("NewInstance at GPU 0 = %v, %v", inst, err)
	}
	if _, err := m.backend.Load(t.Context(), settings(t, "identity.pt", one+` instance_group { kind: KIND_GPU gpus: 5 }`)); err == nil ||
		!strings.Contains(err.Error(), "device:5 is not a GPU of the CUDA driver") {
		t.Errorf("Load at GPU 5 = %v", err)
	}
	itself := m.load(t, settings(t, "identity.pt", one+` instance_group { kind: KIND_MODEL }`))
	if _, ok := itself.(backends.DeviceModel); ok {
		t.Error("a model of KIND_MODEL has tensors at devices")
	}
	if got, err := run(t, itself, x); err != nil || !cmp.Equal([]backendtest.Value{x}, got) {
		t.Errorf("KIND_MODEL: %v, %v", got, err)
	}
}

// TestExecuteAtGPUAllocBudget checks that executions make no Go allocation in the steady state.
func TestExecuteAtGPUAllocBudget(t *testing.T) {
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "embed.pt", embed+onGPU))
	x := instanceAt(t, model, 0)
	b := deviceBatch(t, x, model, []backendtest.Value{fp32([]int64{1, 3}, 0, 1, 2), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 3)})
	defer tensor.ReleaseAll(b.In)
	n := testing.AllocsPerRun(200, func() {
		if err := x.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	})
	if n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
}

// alone runs a test of its name in a process of its own, where the driver and PyTorch have the settings of env: a process has one
// memory limit, and a lost device stays lost. It returns false in the parent.
func alone(t *testing.T, env ...string) bool {
	t.Helper()
	const key = "TUTTI_TEST_ALONE"
	if os.Getenv(key) == t.Name() {
		return true
	}
	pytorch.GPULibraryPath(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test program
	cmd.Env = append(append(os.Environ(), env...), key+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

const small = 16 << 20 // of memory have the devices of tests of pressure

// TestPressure checks both directions of memory pressure: PyTorch gives its unused memory back when the server's pool has none left,
// the pool its own when PyTorch has none, and a request for which there is none fails alone.
func TestPressure(t *testing.T) {
	if !alone(t, "TUTTI_CUDA_CHECK_MEMORY="+strconv.Itoa(small), "TUTTI_CUDA_CHECK_LATE_US=100000") {
		return
	}
	m := newMachine(t, 1, nil)
	model := m.load(t, settings(t, "writes.pt", one+onGPU))
	x := instanceAt(t, model, 0)
	value := func(mib int) backendtest.Value { return fp32([]int64{int64(mib) << 18}, make([]float32, mib<<18)...) }
	run := func(mib int) error {
		_, err := m.executeAt(t, x, model, value(mib))
		return err
	}
	if err := run(4); err != nil { // its clone and its output remain in PyTorch's cache
		t.Fatal(err)
	}
	d := m.devices[0]
	b, err := d.Alloc(11 << 20)
	if err != nil {
		t.Fatalf("PyTorch's cache was not given back: %v", err)
	}
	if err := run(3); err == nil || status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "CUDA out of memory") {
		t.Errorf("a request without memory: %v", err)
	}
	// The release waits for a copy that has not begun, and nothing else waits for that.
	s, err := d.Open("slow", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(b, 0, b.Len(), nil); err != nil {
		t.Fatal(err)
	}
	b.Release()
	if err := run(3); err != nil {
		t.Errorf("the pool did not give its memory back: %v", err)
	}
	for _, c := range []io.Closer{s, x, model} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := cudatest.Count(t).Held; n != 0 {
		t.Errorf("%d bytes of the device are held after the model is unloaded", n)
	}
}

// TestMemoryFraction checks the setting gpu-memory-fraction.
func TestMemoryFraction(t *testing.T) {
	if !alone(t, "TUTTI_CUDA_CHECK_MEMORY="+strconv.Itoa(small)) {
		return
	}
	m := newMachine(t, 1, map[string]string{"gpu-memory-fraction": "0.25"})
	model := m.load(t, settings(t, "writes.pt", one+onGPU))
	x := instanceAt(t, model, 0)
	for elems, ok := range map[int64]bool{1 << 18: true, 1 << 21: false} {
		_, err := m.executeAt(t, x, model, fp32([]int64{elems}, make([]float32, elems)...))
		if (err == nil) != ok {
			t.Errorf("%d bytes within a quarter of %d: %v", 4*elems, small, err)
		}
	}
}

// TestLost checks that a lost device fails requests with its error, and that the model is not ready then.
func TestLost(t *testing.T) {
	if !alone(t) {
		return
	}
	m := newMachine(t, 2, nil)
	model := m.load(t, settings(t, "embed.pt", embed+` instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }`))
	in := []backendtest.Value{fp32([]int64{1, 3}, 0, 1, 2), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 3)}
	y := instanceAt(t, model, 1)
	first, err := model.NewInstance(t.Context(), gpuPlace(0))
	if err != nil {
		t.Fatal(err)
	}
	x := first.(backends.DeviceInstance)
	b := deviceBatch(t, x, model, in)
	if err := model.(backends.ReadinessChecker).Ready(); err != nil {
		t.Errorf("Ready = %v before the loss", err)
	}
	cudatest.Set(t, "lose", 0)
	m.lost = true
	err = runBatch(t, x, b)
	tensor.ReleaseAll(b.In)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "unspecified launch failure") {
		t.Errorf("Execute at the lost device = %v", err)
	}
	if err := model.(backends.ReadinessChecker).Ready(); err == nil || !strings.Contains(err.Error(), "model 'm': ") {
		t.Errorf("Ready = %v after the loss", err)
	}
	if got, err := m.executeAt(t, y, model, in...); err != nil || !cmp.Equal(got[0], fp32([]int64{1, 3}, 2, 2.5, 3)) {
		t.Errorf("the other device: %v, %v", got, err)
	}
	if err := x.Close(); err != nil {
		t.Errorf("Close at the lost device = %v", err)
	}
}
