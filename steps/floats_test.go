package steps_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

func TestFloats(t *testing.T) {
	t.Parallel()
	in, err := tensor.New(tensor.NewPool(), tensor.FP16, tensor.Of(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	bits := tensor.Slice[uint16](&in)
	for i := range bits {
		bits[i] = uint16(i)
	}
	got, _ := steps.Floats(nil, &in, 0, len(bits))
	for i, g := range got {
		if want := worth(i); g != want && !(g != g && want != want) || math.Signbit(float64(g)) != (i >= 1<<15) {
			t.Fatalf("half %#04x is %v, expected %v", i, g, want)
		}
	}
	if part, _ := steps.Floats(got, &in, 0x3c00, 1); len(part) != 1 || part[0] != 1 {
		t.Errorf("one element is %v, expected [1]", part)
	}
}

// worth is the definition of a half.
func worth(bits int) float32 {
	exponent, fraction := bits>>10&31, float64(bits&1023)/1024
	v := math.Ldexp(1+fraction, exponent-15)
	switch {
	case exponent == 0:
		v = math.Ldexp(fraction, -14)
	case exponent == 31 && fraction > 0:
		v = math.NaN()
	case exponent == 31:
		v = math.Inf(1)
	}
	if bits >= 1<<15 {
		v = -v
	}
	return float32(v)
}

func TestFloatPort(t *testing.T) {
	t.Parallel()
	s := steps.Settings{Inputs: []config.Port{{Name: "a", DType: tensor.FP16}, {Name: "b", DType: tensor.FP64}}}
	if a, b := s.FloatPort("a", -1), s.FloatPort("b", 2, 3); a.DType != tensor.FP16 || b.DType != tensor.FP32 || !b.Dims.Equal(tensor.Of(2, 3)) {
		t.Errorf("ports are %v and %v", a, b)
	}
}
