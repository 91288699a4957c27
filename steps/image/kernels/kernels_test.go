package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/steps/image/kernels"
)

// widths are the widths around that of a vector, and some larger ones.
func widths(least int) []int {
	var out []int
	for n := least; n < 70; n++ {
		out = append(out, n)
	}
	return append(out, 127, 128, 129, 640, 1919)
}

func noise(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// atEdge copies data to the end of a memory page; the page after it cannot be read.
func atEdge[T byte | int16 | float32](t *testing.T, data []T) []T {
	t.Helper()
	page, size := unix.Getpagesize(), int(unsafe.Sizeof(data[0]))*len(data)
	n := (size + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, n+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := unix.Mprotect(mem[n:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	out := unsafe.Slice((*T)(unsafe.Pointer(&mem[n-size])), len(data))
	copy(out, data)
	return out
}

// TestEdges runs every kernel on memory at the end of a page: a byte read or written beyond it stops
// the program.
func TestEdges(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 15))
	for _, n := range []int{3, 8, 15, 16, 17, 18, 31, 32, 33, 34, 50, 100} {
		a, b, c := atEdge(t, noise(r, n)), atEdge(t, noise(r, n)), atEdge(t, noise(r, n))
		kernels.Color(atEdge(t, make([]byte, 3*n)), a, b, c)
		kernels.Widen(atEdge(t, make([]byte, 2*n)), a)
		kernels.Stretch(atEdge(t, make([]byte, 2*n)), a, b)
		kernels.Lengthen(atEdge(t, make([]byte, n)), a, b, 1)
		kernels.Add(make([]int32, n), a, b, 1, 2)
		kernels.Round(atEdge(t, make([]byte, n)), make([]int32, n))
		kernels.Blend(atEdge(t, make([]byte, n)), atEdge(t, make([]int16, n)), atEdge(t, make([]int16, n)), 1, 2)
		kernels.Above(atEdge(t, make([]byte, n)), atEdge(t, make([]float32, n)), 1)
		for at := range n - 1 { // every pixel as the last one
			kernels.Lerp(atEdge(t, make([]int16, 7)), atEdge(t, noise(r, 3*n)), []int32{0, int32(at)}, []int16{1, 2, 3, 4})
		}
		coefs := atEdge(t, coefficients(r, n))
		kernels.Inverse(atEdge(t, make([]byte, 64*n)), 8*n, coefs)
		for _, size := range []int{1, 2, 4} {
			kernels.Reduced(atEdge(t, make([]byte, size*size*n)), size*n, size, coefs)
		}
		var taps kernels.Taps
		if most := min(n/4*4, 12); most > 0 && taps.Reset(n, 2, most) {
			taps.Set(0, 0, []int32{1, 2, 3})
			taps.Set(1, n-3, []int32{1, 2, 3})
			row := atEdge(t, noise(r, 3*n))
			kernels.Along(atEdge(t, make([]byte, 7)), atEdge(t, make([]byte, 7)), row, row, &taps)
		}
	}
}

// guarded is memory for n bytes, with bytes after it that must not change.
func guarded(n int) []byte { return bytes.Repeat([]byte{0xa5}, n+64) }

// same compares the bytes written, and those that must not be written.
func same(t *testing.T, name string, n int, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		t.Fatalf("%s of %d: differs from the reference", name, n)
	}
}

// coefficients returns blocks of several kinds: flat, a few low frequencies, all small, all large, and
// the extremes.
func coefficients(r *rand.Rand, blocks int) []int16 {
	c := make([]int16, 64*blocks)
	for i := range blocks {
		b := c[64*i:][:64]
		switch r.IntN(5) {
		case 0:
			b[0] = int16(r.Uint32())
		case 1:
			for range 5 {
				b[8*r.IntN(4)+r.IntN(4)] = int16(r.IntN(2048) - 1024)
			}
		case 2:
			for j := range b {
				b[j] = int16(r.IntN(256) - 128)
			}
		case 3:
			for j := range b {
				b[j] = int16(r.Uint32())
			}
		default:
			for j := range b {
				b[j] = 32767 - int16(r.IntN(2))*32767 - int16(r.IntN(2))
			}
		}
	}
	return c
}

func TestInverse(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for n := 1; n < 9; n++ {
			coefs, stride := coefficients(r, n), 8*n+r.IntN(20)
			want, got := guarded(8*stride), guarded(8*stride)
			kernels.InverseGo(want, stride, coefs)
			kernels.Inverse(got, stride, coefs)
			same(t, "inverse", n, want, got)
		}
	}
	kernels.Inverse(nil, 0, nil)
}

func TestReduced(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(12, 13))
	for _, size := range []int{1, 2, 4} {
		for range 200 {
			for n := 1; n < 9; n++ {
				coefs, stride := coefficients(r, n), size*n+r.IntN(20)
				want, got := guarded(size*stride), guarded(size*stride)
				kernels.ReducedGo(want, stride, size, coefs)
				kernels.Reduced(got, stride, size, coefs)
				same(t, "reduced", n, want, got)
			}
		}
	}
}

func TestColor(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range widths(0) {
		y, b, c := noise(r, n), noise(r, n), noise(r, n)
		want, got := guarded(3*n), guarded(3*n)
		kernels.ColorGo(want, y, b, c)
		kernels.Color(got, y, b, c)
		same(t, "color", n, want, got)
	}
}

// TestColors covers all values of chroma.
func TestColors(t *testing.T) {
	t.Parallel()
	y, b, c := make([]byte, 256), make([]byte, 256), make([]byte, 256)
	want, got := make([]byte, 768), make([]byte, 768)
	for luma := range 256 {
		for i := range 256 {
			for j := range 256 {
				y[j], b[j], c[j] = byte(luma), byte(i), byte(j)
			}
			kernels.ColorGo(want, y, b, c)
			kernels.Color(got, y, b, c)
			same(t, "color of luma", luma, want, got)
		}
	}
}

func TestChroma(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range widths(3) {
		near, far := noise(r, n), noise(r, n)
		want, got := guarded(2*n), guarded(2*n)
		kernels.WidenGo(want, near)
		kernels.Widen(got, near)
		same(t, "widen", n, want, got)
		kernels.StretchGo(want, near, far)
		kernels.Stretch(got, near, far)
		same(t, "stretch", n, want, got)
		for bias := 1; bias < 3; bias++ {
			kernels.LengthenGo(want, near, far, bias)
			kernels.Lengthen(got, near, far, bias)
			same(t, "lengthen", n, want, got)
		}
	}
}

func TestAlong(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for _, most := range []int{1, 3, 4, 5, 17, 40} {
		for _, width := range widths(1) {
			var taps kernels.Taps
			if !taps.Reset(width, 9, most) {
				continue
			}
			for i := range 9 {
				w := make([]int32, 1+r.IntN(most))
				for j := range w {
					w[j] = int32(r.IntN(1<<21)-1<<19) / int32(len(w))
				}
				taps.Set(i, r.IntN(width-len(w)+1), w)
			}
			a, b := slices.Clip(noise(r, 3*width)), slices.Clip(noise(r, 3*width))
			wantA, wantB, gotA, gotB := make([]byte, 27), make([]byte, 27), make([]byte, 28), make([]byte, 28)
			kernels.AlongGo(wantA, a, &taps)
			kernels.AlongGo(wantB, b, &taps)
			kernels.Along(gotA, gotB, a, b, &taps)
			same(t, "along", width, wantA, gotA[:27])
			same(t, "along", width, wantB, gotB[:27])
		}
	}
}

// TestTaps compares with sums of the original weights.
func TestTaps(t *testing.T) {
	t.Parallel()
	var taps kernels.Taps
	if taps.Reset(7, 1, 5) || !taps.Reset(8, 1, 5) {
		t.Fatal("5 weights take two groups of four pixels")
	}
	taps.Set(0, 3, []int32{1 << 20, -1 << 18, 1 << 22, 12345, -77})
	src := noise(rand.New(rand.NewPCG(9, 9)), 24)
	want, got := make([]byte, 3), make([]byte, 4)
	for c := range 3 {
		s := int32(1 << 21)
		for j, k := range []int32{1 << 20, -1 << 18, 1 << 22, 12345, -77} {
			s += k * int32(src[3*(3+j)+c])
		}
		want[c] = byte(min(max(s>>kernels.Precision, 0), 255))
	}
	kernels.Along(got, make([]byte, 4), src, src, &taps)
	same(t, "taps", 1, want, got[:3])
}

func TestSums(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(10, 11))
	for _, n := range widths(0) {
		a, b := noise(r, n), noise(r, n)
		want := make([]int32, n)
		for i := range want {
			want[i] = int32(r.Uint32())
		}
		got := slices.Clone(want)
		ka, kb := int32(r.Uint32())>>8, int32(r.Uint32())>>8
		kernels.AddGo(want, a, b, ka, kb)
		kernels.Add(got, a, b, ka, kb)
		if !slices.Equal(want, got) {
			t.Errorf("add of %d: differs from the reference", n)
		}
		x, y := guarded(n), guarded(n)
		kernels.RoundGo(x, want)
		kernels.Round(y, want)
		same(t, "round", n, x, y)
	}
}

func TestLerp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(16, 17))
	for _, n := range widths(1) {
		src := slices.Clip(noise(r, 3*(n+1)))
		at, weights := make([]int32, n), make([]int16, 2*n)
		for i := range at {
			at[i], weights[2*i] = int32(r.IntN(n)), int16(r.IntN(2049))
			weights[2*i+1] = 2048 - weights[2*i]
		}
		slices.Sort(at)
		want, got := make([]int16, 3*n+1), make([]int16, 3*n+1)
		kernels.LerpGo(want, src, at, weights)
		kernels.Lerp(got, src, at, weights)
		if !slices.Equal(want[:3*n], got[:3*n]) {
			t.Errorf("lerp of %d: differs from the reference", n)
		}
		x, y, below := guarded(3*n), guarded(3*n), slices.Clone(want)
		slices.Reverse(below)
		kernels.BlendGo(x[:3*n], want, below, weights[0], weights[1])
		kernels.Blend(y[:3*n], want, below, weights[0], weights[1])
		same(t, "blend", n, x, y)
	}
}

// tables returns random tables for Planes.
func tables(r *rand.Rand) *[3]*[256]uint32 {
	var out [3]*[256]uint32
	for c := range out {
		out[c] = new([256]uint32)
		for i := range out[c] {
			out[c][i] = r.Uint32()
		}
	}
	return &out
}

func TestPlanes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(18, 19))
	for _, n := range widths(0) {
		src, to := noise(r, 3*n), tables(r)
		got := [3][]byte{guarded(4 * n), guarded(4 * n), guarded(4 * n)}
		kernels.Planes(&got, src, to, nil)
		for c := range 3 {
			want := guarded(4 * n)
			for i := range n {
				binary.LittleEndian.PutUint32(want[4*i:], to[c][src[3*i+c]])
			}
			same(t, "planes", n, want, got[c])
		}
	}
}

func TestAbove(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(20, 21))
	for _, n := range widths(0) {
		values := make([]float32, n)
		for i := range values {
			values[i] = r.Float32()
			switch r.IntN(10) {
			case 0:
				values[i] = 0.5
			case 1:
				values[i] = float32(math.NaN())
			case 2:
				values[i] = float32(math.Inf(1 - 2*r.IntN(2)))
			}
		}
		want, got := guarded(n), guarded(n)
		kernels.AboveGo(want, values, 0.5)
		kernels.Above(got, values, 0.5)
		same(t, "above", n, want, got)
		for i, v := range values {
			if (v > 0.5) != (got[i] == 1) || got[i] > 1 {
				t.Fatalf("%v above 0.5 is %d", v, got[i])
			}
		}
	}
}

// TestLines checks which tables are on lines, and that lines give the bits of the tables.
func TestLines(t *testing.T) {
	t.Parallel()
	table := func(of func(v int) float32) *[256]uint32 {
		out := new([256]uint32)
		for v := range out {
			out[v] = math.Float32bits(of(v))
		}
		return out
	}
	centred := table(func(v int) float32 { return float32((float64(float32(v)*float32(1.0/255)) - 0.5) / 0.5) })
	unit := table(func(v int) float32 { return float32(v) * float32(1.0/255) })
	bytes := table(func(v int) float32 { return float32(v) })
	ripple := table(func(v int) float32 { return float32(v) + float32(v%2)/(1<<16) })
	for _, tt := range []struct {
		name   string
		tables [3]*[256]uint32
		lines  bool
	}{
		{"on lines", [3]*[256]uint32{centred, unit, bytes}, true},
		{"one is no line", [3]*[256]uint32{centred, unit, ripple}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines := kernels.NewLines(&tt.tables)
			if got := lines != nil; got != (tt.lines && kernels.Fused()) {
				t.Fatalf("lines: %v, expected %v on processors that compute them, %v", got, tt.lines, kernels.Fused())
			}
			r := rand.New(rand.NewPCG(22, 23))
			for _, n := range widths(0) {
				src := noise(r, 3*n)
				want := [3][]byte{guarded(4 * n), guarded(4 * n), guarded(4 * n)}
				got := [3][]byte{guarded(4 * n), guarded(4 * n), guarded(4 * n)}
				kernels.Planes(&want, src, &tt.tables, nil)
				kernels.Planes(&got, src, &tt.tables, lines)
				for c := range 3 {
					same(t, "lines", n, want[c], got[c])
				}
			}
		})
	}
}
