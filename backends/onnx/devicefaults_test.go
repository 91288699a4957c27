//go:build cgo

package onnx

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/simdev"
)

// TestGPUOutOfMemory checks that a failed allocation, of the batch or of the runtime, fails the run with the reason, and no later run.
func TestGPUOutOfMemory(t *testing.T) {
	g := openGPUs(t)
	for name, file := range map[string]string{"outputs of the batch": "mlp.onnx", "outputs of the runtime": "nonzero.onnx"} {
		t.Run(name, func(t *testing.T) {
			dims, n := []int64{1, 16}, 16
			if file == "nonzero.onnx" {
				dims = []int64{16}
			}
			r := (&gpus{tb: t, devices: g.devices, host: g.host, b: g.b}).runner(file, onGPU)
			defer r.close()
			b := r.batch(floats(dims, n, 1))
			cudatest.Set(t, "oom", 1)
			err := r.execute(b)
			cudatest.Set(t, "oom", 0)
			if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "cuMemAllocFromPoolAsync at device:0: out of memory") {
				t.Errorf("without memory: %v (%s), want the driver's reason", err, status.CodeOf(err))
			}
			b = r.batch(floats(dims, n, 1))
			if err := r.execute(b); err != nil {
				t.Errorf("the next run: %v", err)
			}
			tensor.ReleaseAll(b.Out)
		})
	}
}

// TestGPULost checks that a run on a lost device names the loss, and that the model can be closed.
func TestGPULost(t *testing.T) {
	cudatest.Library(t)
	t.Cleanup(func() { cudatest.Set(t, "revive", 0) }) // after the driver was closed
	g := openGPUs(t)
	r := g.runner("nonzero.onnx", onGPU)
	b := r.batch(floats([]int64{9}, 9, 0))
	g.lost = true
	cudatest.Set(t, "lose", 0)
	if err := r.execute(b); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
		t.Errorf("a run on a lost device: %v (%s)", err, status.CodeOf(err))
	}
	if err := r.x.Close(); err == nil {
		t.Error("no error when the instance of a lost device closes")
	}
	if err := r.m.Close(); err != nil {
		t.Error(err)
	}
}

// TestGPUCancelled checks that a cancelled run ends, and that the instance runs again.
func TestGPUCancelled(t *testing.T) {
	r := openGPUs(t).runner("loop.onnx", onGPU)
	defer r.close()
	in := func(times int64) []backendtest.Value {
		return []backendtest.Value{backendtest.Of(tensor.Int64, []int64{1}, times), floats([]int64{2}, 2, 1)}
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := r.batch(in(1 << 40)...)
	b.Requests[0] = backends.Request{Ctx: ctx}
	go cancel()
	if err := r.execute(b); !errors.Is(err, status.ErrCancelled) {
		t.Errorf("a cancelled run: %v", err)
	}
	b = r.batch(in(3)...)
	if err := r.execute(b); err != nil {
		t.Fatal(err)
	}
	if got, want := r.read(&b.Out[0]), onHost(t, "loop.onnx", "", in(3)...)[0]; !bytes.Equal(got, want) {
		t.Errorf("the next run: %v, want %v", got, want)
	}
}

// TestGPUMissing checks the errors for a GPU that is not there, and for a device that is none of CUDA.
func TestGPUMissing(t *testing.T) {
	g := openGPUs(t)
	if _, err := g.load("mlp.onnx", "instance_group { kind: KIND_GPU gpus: 7 }"); status.CodeOf(err) != status.Unavailable ||
		!strings.Contains(err.Error(), "there is no device:7") {
		t.Errorf("GPU 7: %v", err)
	}
	machine, err := simdev.New(8, simdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	if err := g.b.places.Add(machine.Devices()[6]); err != nil {
		t.Fatal(err)
	}
	if _, err := g.load("mlp.onnx", "instance_group { kind: KIND_GPU gpus: 6 }"); status.CodeOf(err) != status.Unsupported ||
		!strings.Contains(err.Error(), "device:6 is no CUDA device, which the runtime needs") {
		t.Errorf("a simulated device: %v", err)
	}
}

// TestDescribe checks what tutti doctor prints of the library: whether it has CUDA, and whether there is a GPU for it.
func TestDescribe(t *testing.T) { //nolint:paralleltest // the driver is the process's
	g := openGPUs(t)
	for want, b := range map[string]*backend{
		": it has CUDA, and this machine has a GPU":                     g.b,
		": it has CUDA, but there is no GPU: models run on the CPU":     {lib: g.b.lib},
		": for the CPU only: run 'tutti runtime fetch onnxruntime-gpu'": {lib: &library{version: "1", path: "/none/libonnxruntime.so"}, places: g.b.places},
		"ONNX Runtime 1, /none/libonnxruntime.so":                       {lib: &library{version: "1", path: "/none/libonnxruntime.so"}},
	} {
		if got := b.Describe(); !strings.Contains(got, want) || want[0] == 'O' && got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
