package simdev_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/simdev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine starts n devices. Closing them fails the test on a violation, unless want is part of the error.
func machine(tb testing.TB, n int, o simdev.Options, want string) *simdev.Machine {
	tb.Helper()
	m, err := simdev.New(n, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		switch err := m.Close(); {
		case want == "" && err != nil:
			tb.Error(err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			tb.Errorf("closed with %v, want %q", err, want)
		}
	})
	return m
}

func stream(tb testing.TB, d *simdev.Device, name string) *simdev.Stream {
	tb.Helper()
	s, err := d.Open(name)
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

// must fails the test on an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestDevices runs the contract suite of devices.
func TestDevices(t *testing.T) {
	t.Parallel()
	tensortest.RunDevices(t, tensortest.Machine{Devices: 2, Open: func(tb testing.TB, n int, memory int64) []tensor.Accelerator {
		tb.Helper()
		var list []tensor.Accelerator
		for _, d := range machine(tb, n, simdev.Options{Memory: int(memory)}, "").Devices() {
			list = append(list, d)
		}
		return list
	}})
}

// TestRoundTrip checks copies to a device, across devices and back, and their counters.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	m := machine(t, 2, simdev.Options{Latency: time.Millisecond, Bandwidth: 1 << 20}, "")
	a, b := stream(t, m.Devices()[0], "a"), stream(t, m.Devices()[1], "b")
	host := tensor.NewPool()
	src, dst := alloc(t, host, 1024), alloc(t, host, 1024)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i)
	}
	x, y := alloc(t, a, 1024), alloc(t, b, 1024)
	must(t, a.Copy(x, 0, src, 0, 1024))
	must(t, a.Fill(x, 8, 8, []byte{1, 2}))
	must(t, a.Record().WaitOn(b))
	must(t, b.Copy(y, 0, x, 0, 1024))
	must(t, b.Copy(y, 512, y, 0, 256))
	must(t, b.Copy(dst, 0, y, 0, 1024))
	must(t, b.Record().Wait())
	want := append([]byte(nil), src.Bytes()...)
	copy(want[8:], "\x01\x02\x01\x02\x01\x02\x01\x02")
	copy(want[512:], want[:256])
	if !bytes.Equal(dst.Bytes(), want) {
		t.Error("the bytes came back changed")
	}
	up, down := m.Devices()[0].Stats(), m.Devices()[1].Stats()
	if up.Up != (simdev.Traffic{Count: 1, Bytes: 1024}) || down.Peer.Count != 1 || down.Within.Bytes != 256 || down.Down.Bytes != 1024 {
		t.Errorf("counted %+v and %+v", up, down)
	}
	if got := down.Busy; got < 4*time.Millisecond || got > 6*time.Millisecond {
		t.Errorf("three copies at 1 ms and 1 MiB/s took %s", got)
	}
	for _, b := range []*tensor.Buffer{src, dst, x, y} {
		b.Release()
	}
}

// TestAsynchronous checks that the host continues before the device starts.
func TestAsynchronous(t *testing.T) {
	t.Parallel()
	d := machine(t, 1, simdev.Options{}, "").Devices()[0]
	s := stream(t, d, "s")
	host := tensortest.NewChecked(t, nil)
	src, dst := alloc(t, host, 8), alloc(t, host, 8)
	copy(src.Bytes(), "abcdefgh")
	copy(dst.Bytes(), "--------")
	x := alloc(t, s, 8)
	resume := make(chan struct{})
	must(t, s.Launch("pause", nil, nil, func(simdev.Memory) error { <-resume; return nil }))
	must(t, s.Copy(x, 0, src, 0, 8))
	must(t, s.Copy(dst, 0, x, 0, 8))
	e := s.Record()
	src.Release() // the stream holds its own reference
	x.UsedUntil(e)
	x.Release()
	if e.Done() || string(dst.Bytes()) != "--------" {
		t.Error("a paused stream executed an operation")
	}
	close(resume)
	must(t, e.Wait())
	if !e.Done() || string(dst.Bytes()) != "abcdefgh" {
		t.Errorf("after the event the copy is %q", dst.Bytes())
	}
	dst.Release()
}

// TestBrokenRules checks that every kind of violation is reported with both accesses.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		broken func(t *testing.T, a, b *simdev.Stream, host *tensor.Buffer) error
		want   string
		closed string
	}{
		{"read before it was written", func(t *testing.T, a, _ *simdev.Stream, host *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a, 8)
			defer x.Release()
			return a.Copy(host, 0, x, 0, 8)
		}, "the copy from device:0 to host by stream 'a' comes before anything was written there", ""},
		{"read without an event", func(t *testing.T, a, b *simdev.Stream, host *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a.Device(), 8)
			must(t, a.Copy(x, 0, host, 0, 8))
			x.UsedUntil(a.Record())
			defer x.Release()
			return b.Copy(host, 0, x, 0, 8)
		}, "the copy from device:0 to host by stream 'b' is not ordered after the copy from host to device:0 by stream 'a'; expected an event", ""},
		{"overwritten while it is read", func(t *testing.T, a, b *simdev.Stream, host *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a.Device(), 8)
			must(t, a.Fill(x, 0, 8, nil))
			must(t, a.Record().WaitOn(b))
			must(t, b.Copy(host, 0, x, 0, 8))
			x.UsedUntil(b.Record())
			defer x.Release()
			return a.Fill(x, 0, 8, nil)
		}, "the fill by stream 'a' is not ordered after the copy from device:0 to host by stream 'b'", ""},
		{"used before the allocation", func(t *testing.T, a, b *simdev.Stream, _ *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a, 8)
			defer x.Release()
			return b.Fill(x, 0, 8, nil)
		}, "the fill by stream 'b' is not ordered after the allocation by stream 'a'", ""},
		{"used after it was freed", func(t *testing.T, a, _ *simdev.Stream, _ *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a, 8)
			x.Release()
			return a.Launch("k", nil, []*tensor.Buffer{x}, nil)
		}, "the kernel k by stream 'a' comes after the memory was freed", ""},
		{"freed while it is used", func(t *testing.T, a, _ *simdev.Stream, _ *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a, 8)
			must(t, a.Launch("k", nil, []*tensor.Buffer{x}, func(simdev.Memory) error { return nil }))
			x.Release()
			return nil
		}, "", "the release is not ordered after the kernel k by stream 'a'; expected UsedUntil with an event after it"},
		{"outside the buffer", func(t *testing.T, a, _ *simdev.Stream, host *tensor.Buffer) error {
			t.Helper()
			x := alloc(t, a, 8)
			defer x.Release()
			return a.Copy(x, 4, host, 0, 8)
		}, "8 bytes at 4 are not in a buffer of 8", ""},
		{"between two host buffers", func(_ *testing.T, a, _ *simdev.Stream, host *tensor.Buffer) error {
			return a.Copy(host, 0, host, 0, 8)
		}, "stream 'a' copies from host to host, expected its own device on one side", ""},
		{"kernel that fails", func(t *testing.T, a, _ *simdev.Stream, _ *tensor.Buffer) error {
			t.Helper()
			must(t, a.Launch("k", nil, nil, func(simdev.Memory) error { return errors.New("out of luck") }))
			return a.Record().Wait()
		}, "out of luck", ""},
		{"held", func(t *testing.T, a, _ *simdev.Stream, _ *tensor.Buffer) error {
			t.Helper()
			alloc(t, a, 8)
			return nil
		}, "", "1 buffers of 8 bytes together are still held"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := machine(t, 1, simdev.Options{}, tc.closed).Devices()[0]
			host := alloc(t, tensor.NewPool(), 8)
			t.Cleanup(host.Release)
			err := tc.broken(t, stream(t, d, "a"), stream(t, d, "b"), host)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestHostMustNotLook checks that Bytes of a device buffer panics, and that freed memory loses its content.
func TestHostMustNotLook(t *testing.T) {
	t.Parallel()
	d := machine(t, 1, simdev.Options{Memory: 64}, "").Devices()[0]
	s := stream(t, d, "s")
	x := alloc(t, s, 64)
	must(t, s.Fill(x, 0, 64, []byte{7}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the host can look at device memory")
			}
		}()
		x.Bytes()
	}()
	at := x.Pointer()
	must(t, s.Record().Wait()) // the stream holds a reference to x until then
	x.Release()
	if _, err := s.Alloc(8192); err == nil || !strings.Contains(err.Error(), "of 64 bytes are in use") {
		t.Errorf("more than there is: %v", err)
	}
	y := alloc(t, s, 64)
	if y.Pointer() != at {
		t.Fatalf("%p was freed and %p given out", at, y.Pointer())
	}
	must(t, s.Launch("look", nil, []*tensor.Buffer{y}, func(m simdev.Memory) error {
		if bytes.Count(m.Bytes(y), []byte{0xdb}) != 64 {
			return errors.New("freed memory is not poisoned")
		}
		return nil
	}))
	y.UsedUntil(s.Record())
	must(t, s.Record().Wait())
	y.Release()
}

// TestPlaces checks which allocator tensor.Places returns per place.
func TestPlaces(t *testing.T) {
	t.Parallel()
	m := machine(t, 2, simdev.Options{}, "")
	host, pinned := tensor.NewPool(), tensor.NewPinnedPool()
	p := tensor.NewPlaces(host)
	at := tensor.Place{Kind: tensor.Pinned}
	if p.At(at) != tensor.Allocator(host) {
		t.Error("host memory does not stand in for pinned memory")
	}
	p.SetPinned(pinned)
	if p.At(at) != tensor.Allocator(pinned) || p.At(tensor.Place{}) != tensor.Allocator(host) {
		t.Error("pinned and host memory are mixed up")
	}
	b, err := p.At(at).Alloc(2 << 20)
	must(t, err)
	if total, used := p.PinnedUsage(); total != 2<<20 || used != 2<<20 {
		t.Errorf("%d of %d bytes of pinned memory are used", used, total)
	}
	b.Release()
	if total, used := p.PinnedUsage(); total != 2<<20 || used != 0 {
		t.Errorf("afterwards %d of %d bytes of pinned memory are used", used, total)
	}
	p.SetPinned(nil)
	if total, used := p.PinnedUsage(); p.At(at) != tensor.Allocator(host) || total != 0 || used != 0 {
		t.Error("the pool of pinned memory stays")
	}
	must(t, p.Add(m.Devices()[1]))
	must(t, p.Add(m.Devices()[0]))
	if err := p.Add(m.Devices()[0]); err == nil {
		t.Error("one place has two devices")
	}
	if got := p.Devices(); len(got) != 2 || got[0] != simdev.Place(0) || p.At(got[1]) != tensor.Allocator(m.Devices()[1]) {
		t.Errorf("devices %v", got)
	}
	p.Remove(simdev.Place(0))
	if p.At(simdev.Place(0)) != nil || p.Device(simdev.Place(1)) == nil {
		t.Error("the wrong device was removed")
	}
}
