package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

func ExampleFP16ToFloat32() {
	fmt.Println(tensor.FP16ToFloat32(0x3c00), tensor.FP16ToFloat32(0xc000), tensor.FP16ToFloat32(0x7bff))
	// Output: 1 -2 65504
}

func ExampleFloat32ToBF16() {
	fmt.Printf("%#04x\n", tensor.Float32ToBF16(1))
	// Output: 0x3f80
}

// binary16 decodes a half by the definition of IEEE 754.
func binary16(h uint16) float64 {
	sign, exponent, fraction := 1-2*float64(h>>15), int(h>>10)&31, float64(h&1023)
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	default:
		return sign * math.Ldexp(1024+fraction, exponent-25)
	}
}

func TestFP16ConvertsEveryValueBothWays(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := tensor.FP16ToFloat32(h), float32(binary16(h))
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) { // NaN
			t.Fatalf("%#04x became %v, want %v", h, got, want)
		}
		if back := tensor.Float32ToFP16(got); back != h {
			t.Fatalf("%#04x became %v, which became %#04x", h, got, back)
		}
	}
}

func TestFloat32ToFP16RoundsToTheNearestAndTiesToEven(t *testing.T) {
	for h := range uint16(0x7bff) { // every pair of neighbours from 0 to 65504
		low, high := binary16(h), binary16(h+1)
		middle := float32((low + high) / 2)
		even := h + h&1
		for _, c := range []struct {
			f    float32
			want uint16
		}{
			{math.Nextafter32(middle, 0), h},
			{middle, even},
			{math.Nextafter32(middle, 1e9), h + 1},
			{-middle, even | 0x8000},
		} {
			if got := tensor.Float32ToFP16(c.f); got != c.want {
				t.Fatalf("%v became %#04x, want %#04x", c.f, got, c.want)
			}
		}
	}
}

// TestFloat32ToFP16AsNumpy checks values against numpy.float32.astype(numpy.float16).
func TestFloat32ToFP16AsNumpy(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x477fefff: 0x7bff, // below 65520
		0x477ff000: 0x7c00, // 65520
		0xff800000: 0xfc00,
		0x7fc00000: 0x7e00, // NaNs: a short payload never becomes an infinity
		0x7f800001: 0x7c01,
		0xffc12345: 0xfe09,
		0x7fa00000: 0x7d00,
	} {
		if got := tensor.Float32ToFP16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#08x became %#04x, want %#04x", bits, got, want)
		}
	}
}

func TestBF16RoundsToTheNearestAndTiesToEven(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80,
		0x3f807fff: 0x3f80,
		0x3f808000: 0x3f80, // a tie, down to even
		0x3f818000: 0x3f82, // a tie, up to even
		0xbf808001: 0xbf81,
		0x7f7fffff: 0x7f80, // rounds to an infinity
		0x7f800001: 0x7fc0, // a NaN stays one
		0xff800000: 0xff80,
	} {
		if got := tensor.Float32ToBF16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#08x became %#04x, want %#04x", bits, got, want)
		}
	}
	for i := range 1 << 16 {
		h := uint16(i)
		f := tensor.BF16ToFloat32(h)
		if f == f && tensor.Float32ToBF16(f) != h { // NaN
			t.Fatalf("%#04x became %v, which became %#04x", h, f, tensor.Float32ToBF16(f))
		}
	}
}
