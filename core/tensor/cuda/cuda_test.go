package cuda_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the checking driver with n devices. Closing it fails the test on a fault or a leak.
func open(tb testing.TB, n int) []*cuda.Device {
	tb.Helper()
	only := make([]int, n)
	for i := range only {
		only[i] = i
	}
	list, err := openDriver(tb).Devices(cuda.Options{Only: only})
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

func stream(tb testing.TB, d *cuda.Device, name string) *cuda.Stream {
	tb.Helper()
	s, err := d.Open(name, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func alloc(tb testing.TB, a tensor.Allocator, n int) *tensor.Buffer {
	tb.Helper()
	b, err := a.Alloc(n)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestNoDriver checks the errors of a machine without the driver.
func TestNoDriver(t *testing.T) {
	t.Parallel()
	_, err := cuda.Open("libtutti_no_such.so")
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(fmt.Sprint(err), "libtutti_no_such.so") {
		t.Errorf("Open of a missing library: %v", err)
	}
	_, err = cuda.Open("libm.so.6")
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(fmt.Sprint(err), "cuInit") {
		t.Errorf("Open of another library: %v", err)
	}
}

// TestRefused checks arguments that only CUDA refuses.
func TestRefused(t *testing.T) {
	t.Parallel()
	d := open(t, 1)[0]
	s := stream(t, d, "s")
	b := alloc(t, s, 64)
	if err := s.Fill(b, 0, 6, []byte{1, 2, 3}); err == nil {
		t.Error("elements of 3 bytes are accepted")
	}
	b.Release()
	_, err := d.Alloc(1 << 50)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "device:0") {
		t.Errorf("Alloc of too much: %v", err)
	}
}

// TestRecordIsFree checks that an execution's events allocate nothing.
func TestRecordIsFree(t *testing.T) {
	d := open(t, 1)[0]
	s := stream(t, d, "s")
	x, y := alloc(t, s, 64), alloc(t, s, 64)
	must(t, s.Fill(x, 0, 64, nil))
	step := func() {
		b, err := s.Alloc(64)
		must(t, err)
		must(t, s.Copy(b, 0, x, 0, 64))
		b.SetReady(s.Record())
		x.UsedUntil(b.Ready())
		b.Release()
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n > 0 {
		t.Errorf("%v allocations per edge, want 0", n)
	}
	must(t, s.Record().Wait())
	x.Release()
	y.Release()
}

// TestSpill checks that tensors beyond a device's bound are in pinned memory, hold their content, and come back.
func TestSpill(t *testing.T) {
	t.Parallel()
	d := open(t, 1)[0]
	host := tensor.NewPool()
	pinned := cuda.NewPinned(d, 8<<20, host)
	d.SpillTo(pinned, 1<<20)
	s := stream(t, d, "s")
	src, dst := alloc(t, host, 1<<20), alloc(t, host, 1<<20)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i / 3)
	}
	var list []*tensor.Buffer
	for range 4 {
		b := alloc(t, s, 1<<20)
		must(t, s.Copy(b, 0, src, 0, 1<<20))
		list = append(list, b)
	}
	if d.Spilled() != 3 || d.InUse() != 1<<20 {
		t.Errorf("%d spilled, %d bytes in use; want 3 and one buffer", d.Spilled(), d.InUse())
	}
	_, err := s.Alloc(16 << 20)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "--cuda-memory-pool-byte-size") {
		t.Errorf("Alloc beyond the pinned pool: %v", err)
	}
	must(t, s.Copy(list[1], 0, list[3], 0, 1<<20))
	must(t, s.Copy(dst, 0, list[1], 0, 1<<20))
	for _, b := range list {
		b.Release()
	}
	must(t, s.Record().Wait())
	if !bytes.Equal(src.Bytes(), dst.Bytes()) {
		t.Error("the content changed")
	}
	src.Release()
	dst.Release()
	must(t, s.Close())
	for _, used := pinned.Usage(); used > 0; _, used = pinned.Usage() {
		runtime.Gosched() // releases follow the device's work
	}
	pinned.Close()
}

// TestPressure checks that an allocation which finds no memory asks for unused memory of others, tries again, and fails then.
func TestPressure(t *testing.T) { // changes the driver's settings
	cudatest.Require(t)
	d := open(t, 1)[0]
	s := stream(t, d, "s")
	alloc(t, s, 8).Release()
	asked := 0
	remove := d.OnPressure(func() { asked++ })
	defer cudatest.Set(t, "oom", 0)
	cudatest.Set(t, "oom", 2) // every second allocation fails
	for range 2 {
		alloc(t, s, 8).Release()
	}
	if asked != 1 {
		t.Errorf("asked %d times for memory, want once", asked)
	}
	cudatest.Set(t, "oom", 1)
	if _, err := s.Alloc(8); status.CodeOf(err) != status.Unavailable || asked != 2 {
		t.Errorf("Alloc without memory = %v, asked %d times, want a second time", err, asked)
	}
	remove()
	if _, err := d.Alloc(8); err == nil || asked != 2 {
		t.Errorf("Alloc = %v, asked %d times after the end of the registration", err, asked)
	}
}
