//go:build cgo

package steptest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/cuda/kernels"
	"github.com/tutti-server/tutti/steps"
)

// AtDevice is a step at the checking driver's first device, and the same step on the host.
type AtDevice struct {
	t      *testing.T
	c      *Case
	host   *runner
	run    steps.DeviceRunner
	stream tensor.Stream
	pool   *tensor.Pool
}

// OpenDevice is GPU.Step at a GPU of its own.
func OpenDevice(t *testing.T, f steps.Factory, c *Case) *AtDevice {
	t.Helper()
	return OpenGPU(t).Step(t, f, c)
}

// GPU is the checking driver's first device.
type GPU struct{ device *cuda.Device }

// Step makes a step for the host and at the device.
func (g *GPU) Step(t *testing.T, f steps.Factory, c *Case) *AtDevice {
	t.Helper()
	gpu := g.device
	s, err := settings(t, &f, c)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := f.Signature(s)
	if err != nil {
		t.Fatal(err)
	}
	step, err := f.New(s)
	if err != nil {
		t.Fatal(err)
	}
	on, ok := step.(steps.DeviceStep)
	if !ok || on.HostOnly() != "" {
		t.Fatalf("step %q does not run at devices", f.Name)
	}
	a := &AtDevice{t: t, c: c, host: &runner{c: c, sig: sig, step: step}, pool: tensor.NewPool()}
	if a.stream, err = gpu.NewStream(f.Name); err != nil {
		t.Fatal(err)
	}
	load := func() (compute.Kernels, error) { return compute.Of(gpu) }
	if a.run, err = on.AtDevice(&steps.Device{Stream: a.stream, Pinned: a.pool, Load: load}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.run.Close(); err != nil {
			t.Error(err)
		}
		if err := a.stream.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// OpenGPU opens the checking driver. It skips the test without it. At the end of the test it checks that nothing is left at the device, and
// that the driver has found no mistakes.
func OpenGPU(t *testing.T) *GPU {
	t.Helper()
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := driver.Devices(cuda.Options{Kernels: kernels.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
	})
	return &GPU{list[0]}
}

// Compare runs one batch of requests of rows each on the host and at the device, and compares the outputs: bit for bit, FP32 within ulps units in
// the last place; NaN equals NaN. Inputs are in the signature's order, joined along the batch dimension.
func (a *AtDevice) Compare(ulps, requests int, inputs ...Value) {
	a.t.Helper()
	want, wantErr := a.batch(requests, inputs, a.host.step.Run, nil)
	defer tensor.ReleaseAll(want.Out)
	got, err := a.batch(requests, inputs, a.run.Run, a.stream)
	defer tensor.ReleaseAll(got.Out)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		a.t.Fatalf("the device gives error %v, the host %v", err, wantErr)
	}
	if err != nil {
		return
	}
	for i := range want.Requests {
		if x, y := want.Requests[i].Err, got.Requests[i].Err; (x == nil) != (y == nil) || x != nil && x.Error() != y.Error() {
			a.t.Fatalf("request %d: the device gives error %v, the host %v", i, y, x)
		}
	}
	for i := range want.Out {
		w, g := &want.Out[i], &got.Out[i]
		if !w.Present() {
			continue
		}
		if g.DType != w.DType || !g.Shape.Equal(w.Shape) {
			a.t.Fatalf("output %d is %s %s at the device, %s %s on the host", i, g.DType, g.Shape, w.DType, w.Shape)
		}
		down := a.down(g)
		if msg := differAt(w, &down, ulps); msg != "" {
			a.t.Errorf("output %d of inputs %v: %s", i, shapes(inputs), msg)
		}
		down.Release()
	}
}

func shapes(values []Value) string {
	var text strings.Builder
	for _, v := range values {
		fmt.Fprintf(&text, "%s%v ", v.DType, v.Dims)
	}
	return text.String()
}

// batch runs one batch with inputs at the stream's device, or on the host without a stream.
func (a *AtDevice) batch(requests int, inputs []Value, run func(context.Context, *backends.Batch) error, s tensor.Stream) (*backends.Batch, error) {
	a.t.Helper()
	b := &backends.Batch{Allocator: a.pool, HostAllocator: a.pool, Rows: 1, Out: make([]tensor.Tensor, len(a.host.sig.Outputs)), Stream: s}
	if s != nil {
		b.Allocator = s
	}
	if a.c.MaxBatch > 0 {
		b.Rows = int(inputs[0].Dims[0])
	}
	for i := range requests {
		n := b.Rows / requests
		b.Requests = append(b.Requests, backends.Request{Meta: &infer.Meta{}, Ctx: a.t.Context(), First: i * n, Rows: n})
	}
	for _, v := range inputs {
		b.In = append(b.In, a.up(v, s))
	}
	err := run(a.t.Context(), b)
	if s != nil {
		e := s.Record()
		for i := range b.In {
			if b.In[i].Buf.Place().Kind == tensor.Device {
				b.In[i].Buf.UsedUntil(e)
			}
		}
		for i := range b.Out {
			if b.Out[i].Present() && b.Out[i].Buf.Place().Kind == tensor.Device && b.Out[i].Buf.Ready() == nil {
				b.Out[i].Buf.SetReady(e)
			}
		}
	}
	tensor.ReleaseAll(b.In)
	return b, err
}

// up returns a value as a tensor.
func (a *AtDevice) up(v Value, s tensor.Stream) tensor.Tensor {
	a.t.Helper()
	host, err := tensor.NewBytes(a.pool, tensor.Of(v.Dims...), len(v.Data))
	if err != nil {
		a.t.Fatal(err)
	}
	host.DType = v.DType
	copy(host.Bytes(), v.Data)
	if s == nil || v.DType == tensor.Bytes {
		return host
	}
	t, err := tensor.New(s, v.DType, host.Shape)
	if err == nil {
		err = s.Copy(t.Buf, 0, host.Buf, 0, t.Len)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	host.Release()
	return t
}

// down returns a copy of a device's tensor on the host.
func (a *AtDevice) down(t *tensor.Tensor) tensor.Tensor {
	a.t.Helper()
	if t.Buf.Place().Kind != tensor.Device {
		return t.Retain()
	}
	host, err := tensor.New(a.pool, t.DType, t.Shape)
	if err == nil {
		err = a.stream.Copy(host.Buf, 0, t.Buf, t.Off, t.Len)
	}
	if err == nil {
		err = a.stream.Record().Wait()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return host
}

// differAt returns how two tensors differ, "" if they do not.
func differAt(want, got *tensor.Tensor, ulps int) string {
	size := want.DType.Size()
	for i := range want.Len / max(size, 1) {
		w, g := want.Bytes()[i*size:][:size], got.Bytes()[i*size:][:size]
		if string(w) == string(g) {
			continue
		}
		if want.DType == tensor.FP32 {
			x, y := tensor.Slice[float32](want)[i], tensor.Slice[float32](got)[i]
			if x != x && y != y || distance(x, y) <= int64(ulps) {
				continue
			}
			return fmt.Sprintf("element %d is %g at the device, %g on the host", i, y, x)
		}
		if nan(want.DType, w) && nan(want.DType, g) {
			continue
		}
		return fmt.Sprintf("element %d has bytes % x at the device, % x on the host", i, g, w)
	}
	return ""
}

// distance returns the units in the last place between two numbers.
func distance(x, y float32) int64 {
	order := func(f float32) int64 {
		b := int64(math.Float32bits(f))
		if b < 1<<31 {
			return b
		}
		return 1<<31 - b
	}
	d := order(x) - order(y)
	return max(d, -d)
}

// nan reports whether an element of FP16, BF16 or FP64 is not a number.
func nan(d tensor.DType, elem []byte) bool {
	switch d {
	case tensor.FP16, tensor.BF16:
		h := uint16(elem[0]) | uint16(elem[1])<<8
		f := tensor.FP16ToFloat32(h)
		if d == tensor.BF16 {
			f = tensor.BF16ToFloat32(h)
		}
		return f != f
	case tensor.FP64:
		var bits uint64
		for i, v := range elem {
			bits |= uint64(v) << (8 * i)
		}
		return math.IsNaN(math.Float64frombits(bits))
	default:
		return false
	}
}
