package cuda_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens the checking driver with n devices. Closing it fails the test on a fault or a leak.
func open(tb testing.TB, n int) []*cuda.Device {
	tb.Helper()
	driver, err := cuda.Open(cudatest.Library(tb))
	if err != nil {
		tb.Fatal(err)
	}
	only := make([]int, n)
	for i := range only {
		only[i] = i
	}
	list, err := driver.Devices(cuda.Options{Only: only})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := driver.Close(); err != nil {
			tb.Error(err)
		}
		cudatest.Check(tb)
	})
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

func TestAllocators(t *testing.T) {
	t.Parallel()
	t.Run("device", func(t *testing.T) {
		t.Parallel()
		tensortest.Run(t, func(tb testing.TB) tensor.Allocator { tb.Helper(); return open(tb, 1)[0] })
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		tensortest.Run(t, func(tb testing.TB) tensor.Allocator { tb.Helper(); return stream(tb, open(tb, 1)[0], "s") })
	})
}

// TestRoundTrip checks copies to a device, across devices and back, and fills of every width.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	list := open(t, 2)
	a, b := stream(t, list[0], "a"), stream(t, list[1], "b")
	host := tensor.NewPool()
	src, dst := alloc(t, host, 1024), alloc(t, host, 1024)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i)
	}
	x, y := alloc(t, a, 1024), alloc(t, b, 1024)
	must(t, a.Copy(x, 0, src, 0, 1024))
	want := bytes.Clone(src.Bytes())
	src.Release() // the stream holds it
	for i, elem := range [][]byte{{7}, {1, 2}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, {9, 9, 9, 9, 9, 9, 9, 9}, nil} {
		must(t, a.Fill(x, 64*i+8, 32, elem))
		if elem == nil {
			elem = []byte{0}
		}
		copy(want[64*i+8:], bytes.Repeat(elem, 32/len(elem)))
	}
	must(t, a.Record().WaitOn(b))
	must(t, b.Copy(y, 0, x, 0, 1024))
	must(t, b.Copy(y, 512, y, 0, 256))
	copy(want[512:], want[:256])
	must(t, b.Copy(dst, 0, y, 0, 1024))
	must(t, b.Record().Wait())
	if !bytes.Equal(dst.Bytes(), want) {
		t.Error("the bytes came back changed")
	}
	for _, b := range []*tensor.Buffer{dst, x, y} {
		b.Release()
	}
}

// TestRandom does the same random work on streams of a device and on the host, and compares.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			d := open(t, 1)[0]
			streams := []*cuda.Stream{stream(t, d, "0"), stream(t, d, "1"), stream(t, d, "2")}
			const size = 256
			type pair struct {
				b    *tensor.Buffer
				want []byte
				last tensor.Event
			}
			host := tensor.NewPool()
			var list []*pair
			wait := func(s *cuda.Stream, p *pair) {
				if p.last != nil {
					must(t, p.last.WaitOn(s))
				}
			}
			for range 300 {
				s := streams[r.IntN(len(streams))]
				switch k := r.IntN(5); {
				case k == 0 || len(list) < 2:
					p := &pair{b: alloc(t, s, size), want: make([]byte, size)}
					elem := []byte{byte(r.Uint32()), byte(r.Uint32())}
					must(t, s.Fill(p.b, 0, size, elem))
					copy(p.want, bytes.Repeat(elem, size/2))
					p.last = s.Record()
					list = append(list, p)
				case k == 1:
					i := r.IntN(len(list))
					list[i].b.Release()
					list = append(list[:i], list[i+1:]...)
				case k == 2:
					p := list[r.IntN(len(list))]
					wait(s, p)
					back := alloc(t, host, size)
					must(t, s.Copy(back, 0, p.b, 0, size))
					p.last = s.Record()
					must(t, p.last.Wait())
					if !bytes.Equal(back.Bytes(), p.want) {
						t.Fatal("content differs")
					}
					back.Release()
				default:
					p, q := list[r.IntN(len(list))], list[r.IntN(len(list))]
					if p == q {
						continue
					}
					wait(s, p)
					wait(s, q)
					from, to, n := r.IntN(size/2), r.IntN(size/2), 1+r.IntN(size/2)
					must(t, s.Copy(q.b, to, p.b, from, n))
					copy(q.want[to:to+n], p.want[from:from+n])
					p.last = s.Record()
					q.last = p.last
				}
			}
			for _, p := range list {
				p.b.Release()
			}
		})
	}
}

// TestConcurrent uses one device from many goroutines.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	d := open(t, 1)[0]
	host := tensor.NewPool()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			s, err := d.NewStream(strconv.Itoa(g))
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 50 {
				src, dst := alloc(t, host, 512), alloc(t, host, 512)
				copy(src.Bytes(), bytes.Repeat([]byte{byte(g), byte(i)}, 256))
				x, err := s.Alloc(512)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Copy(x, 0, src, 0, 512); err != nil {
					t.Error(err)
				}
				if err := s.Copy(dst, 0, x, 0, 512); err != nil {
					t.Error(err)
				}
				e := s.Record()
				x.Release()
				if err := e.Wait(); err != nil || !bytes.Equal(src.Bytes(), dst.Bytes()) {
					t.Errorf("goroutine %d: %v, or other content", g, err)
				}
				src.Release()
				dst.Release()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := host.InUse(); n != 0 {
		t.Errorf("%d bytes of host memory are held", n)
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

// TestRefused checks bad arguments.
func TestRefused(t *testing.T) {
	t.Parallel()
	d := open(t, 1)[0]
	s := stream(t, d, "s")
	b := alloc(t, s, 64)
	host := alloc(t, tensor.NewPool(), 64)
	for name, err := range map[string]error{
		"beyond the end":     s.Copy(b, 32, host, 0, 33),
		"negative offset":    s.Copy(b, -1, host, 0, 8),
		"overflow":           s.Copy(b, 1, host, 0, int(^uint(0)>>1)),
		"no side":            s.Copy(host, 0, host, 0, 8),
		"elements of 3":      s.Fill(b, 0, 6, []byte{1, 2, 3}),
		"part of an element": s.Fill(b, 0, 6, []byte{1, 2, 3, 4}),
		"host memory":        s.Fill(host, 0, 8, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	b.Release()
	host.Release()
	_, err := d.Alloc(1 << 50)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "device:0") {
		t.Errorf("Alloc of too much: %v", err)
	}
	if v := os.Getenv("TUTTI_CUDA_CHECK_SEED"); v != "" {
		t.Log("seed", v)
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
