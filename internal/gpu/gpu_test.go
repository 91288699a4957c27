package gpu_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/gpu"
)

// open opens the checking driver. Closing it fails the test on a fault or a leak.
func open(t *testing.T, s gpu.Settings) *gpu.Devices {
	t.Helper()
	s.Driver = cudatest.Library(t)
	d, err := gpu.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
	})
	return d
}

// TestOpen checks the devices, and that opening them makes no context.
func TestOpen(t *testing.T) {
	d := open(t, gpu.Settings{Capability: 7.5, PinnedSize: 1 << 20})
	if l := d.List(); len(l) != 2 || l[0].Capability != 9.0 || l[1].Place.String() != "device:1" || len(d.Accelerators()) != 2 {
		t.Errorf("devices %+v", l)
	}
	host := tensor.NewPool()
	if d.Pinned(host) == nil || d.Pinned(host) != d.Pinned(host) {
		t.Error("expected one pool of pinned memory")
	}
	if !d.Started().IsZero() {
		t.Error("opening the devices made a context")
	}
	b, err := d.Accelerators()[0].Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	if d.Started().IsZero() {
		t.Error("the first allocation made no context")
	}
}

// TestPools checks that tensors beyond --cuda-memory-pool-byte-size are in pinned memory.
func TestPools(t *testing.T) {
	d := open(t, gpu.Settings{Pools: map[int]int64{0: 1 << 20}, PinnedSize: 4 << 20})
	d.Pinned(tensor.NewPool())
	var held []*tensor.Buffer
	for i, want := range []string{"", "", "--pinned-memory-pool-byte-size"} {
		b, err := d.Accelerators()[0].Alloc(1<<20 + i<<20)
		switch {
		case want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("allocation %d: %v, want %q", i, err, want)
		case err == nil:
			held = append(held, b)
		}
	}
	for _, b := range held {
		b.Release()
	}
}

// TestNativeMemory checks that memory of native runtimes, such as weights, is at the device whatever --cuda-memory-pool-byte-size is, and
// leaves its bytes to tensors. With Triton the option bounds the pool of tensors, and no model fails to load because of it.
func TestNativeMemory(t *testing.T) {
	d := open(t, gpu.Settings{Pools: map[int]int64{0: 1 << 10}, PinnedSize: 4 << 20})
	d.Pinned(tensor.NewPool())
	device, ok := d.Accelerators()[0].(*cuda.Device)
	if !ok {
		t.Fatal("the device is not of the CUDA driver")
	}
	stream, err := device.Open("native", 0)
	if err != nil {
		t.Fatal(err)
	}
	var held []*tensor.Buffer
	for i, alloc := range []func(n int) (*tensor.Buffer, error){device.AllocNative, stream.AllocNative, device.Alloc, stream.AllocNative} {
		n := 1 << 20
		if i == 2 {
			n = 1 << 10
		}
		b, err := alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if b.Spill() != nil || b.Place() != device.Place() {
			t.Errorf("allocation %d spilled", i)
		}
		held = append(held, b)
	}
	shared, _, err := device.AllocShared(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	held = append(held, shared)
	more, err := device.Alloc(1)
	if err != nil || more.Spill() == nil {
		t.Fatalf("a tensor beyond the bound did not spill: %v", err)
	}
	if _, err := device.AllocNative(1 << 40); status.CodeOf(err) != status.Unavailable {
		t.Errorf("more than the device has: %v", err)
	}
	if _, err := stream.AllocNative(-1); err == nil {
		t.Error("a negative size was allocated")
	}
	more.Release()
	for _, b := range held {
		b.Release()
	}
	if b, err := device.Alloc(1 << 10); err != nil || b.Spill() != nil {
		t.Errorf("afterwards a tensor within the bound spilled: %v", err)
	} else {
		b.Release()
	}
	if err := stream.Close(); err != nil || device.InUse() != 0 {
		t.Errorf("%v, %d bytes are in use", err, device.InUse())
	}
}

// TestPoolWithoutPinned checks that an allocation beyond the bound fails where there is no pinned memory.
func TestPoolWithoutPinned(t *testing.T) {
	d := open(t, gpu.Settings{Pools: map[int]int64{0: 1 << 20}})
	if d.Pinned(tensor.NewPool()) != nil {
		t.Error("there is a pool of pinned memory")
	}
	b, err := d.Accelerators()[0].Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if more, err := d.Accelerators()[0].Alloc(1); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "--cuda-memory-pool-byte-size") {
		t.Errorf("allocated beyond the bound, %v", err)
		more.Release()
	}
	native, err := d.Accelerators()[0].(*cuda.Device).AllocNative(2 << 20) //nolint:forcetypeassert // of the driver
	if err != nil {
		t.Errorf("weights beyond the bound of tensors: %v", err)
	} else {
		native.Release()
	}
	b.Release()
}

// TestOpenErrors checks that an error says why no GPU can be used.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	library := cudatest.Library(t)
	for want, s := range map[string]gpu.Settings{
		"libnone.so: cannot open shared object file":  {Driver: "libnone.so"},
		"capability 9.0 is below 9.5, see --min-sup":  {Driver: library, Capability: 9.5},
		"names GPU 7, expected 0 to 1":                {Driver: library, Pools: map[int]int64{7: 1}},
		"load-gpu-limit names GPU 2, expected 0 to 1": {Driver: library, Limited: []int{0, 2}},
	} {
		if _, err := gpu.Open(s); err == nil || !strings.Contains(err.Error(), want) || status.CodeOf(err) == status.Internal {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	var none *gpu.Devices
	if none.Accelerators() != nil || none.Pinned(nil) != nil || none.List() != nil || none.Close() != nil || !none.Started().IsZero() {
		t.Error("a nil Devices has something")
	}
}
