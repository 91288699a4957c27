package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// tapKind is a kind of weights.
type tapKind uint8

const (
	noTaps tapKind = iota
	linearTaps
	areaTaps // linear, for Area where a side grows
	cubicTaps
	lanczosTaps
)

// count returns the number of weights of an output.
func (k tapKind) count() int {
	switch k {
	case cubicTaps:
		return 4
	case lanczosTaps:
		return 8
	case noTaps, linearTaps, areaTaps:
	}
	return 2
}

// one is the sum of the weights of an output: 1 with 11 fraction bits.
const one = 1 << 11

// taps holds the weights of one axis. Output i is the sum of the inputs from at[i] on, times its weights. Inputs beyond
// an edge are the input at the edge.
type taps struct {
	kind     tapKind
	span     Span
	channels int // 0 for the axis down the columns
	n        int // weights of an output
	at       []int32
	weights  []int16
	// low and high delimit the outputs that need no input beyond an edge.
	low, high int
}

// set computes the weights, unless the last image had the same span.
func (t *taps) set(kind tapKind, s Span, channels int) {
	if t.kind == kind && t.span == s && t.channels == channels {
		return
	}
	t.kind, t.span, t.channels, t.n = kind, s, channels, kind.count()
	t.at, t.weights = raster.Sized(t.at, s.N), raster.Sized(t.weights, s.N*t.n)
	scale := s.scale()
	for i := range s.N {
		at, x := t.locate(s.From+i, scale)
		t.at[i] = int32(at - t.n/2 + 1)
		t.weigh(t.weights[i*t.n:][:t.n], x)
	}
	t.low, t.high = 0, s.N
	for t.low < s.N && t.at[t.low] < 0 {
		t.low++
	}
	for t.high > t.low && int(t.at[t.high-1])+t.n > s.In {
		t.high--
	}
}

// locate returns the input at or before the centre of output i, and the distance from it to the centre.
func (t *taps) locate(i int, scale float64) (at int, x float32) {
	if t.kind == areaTaps {
		at = int(math.Floor(float64(i) * scale))
		x = float32(float64(i+1) - float64(float64(at+1)*(float64(t.span.Out)/float64(t.span.In))))
		if x <= 0 {
			x = 0
		} else {
			x -= float32(math.Floor(float64(x)))
		}
	} else {
		x = float32(float64((float64(i)+0.5)*scale) - 0.5)
		at = int(math.Floor(float64(x)))
		x -= float32(at)
	}
	if t.channels == 0 || t.n != 2 {
		return at, x
	}
	switch last := t.span.In - 1; { // along the rows only
	case at < 0:
		return 0, 0
	case at >= last:
		return last, 0
	}
	return at, x
}

func (t *taps) weigh(dst []int16, x float32) {
	var w [8]float32
	switch t.kind {
	case cubicTaps:
		cubic(w[:], x)
	case lanczosTaps:
		lanczos4(w[:], x)
	case noTaps, linearTaps, areaTaps:
		w[0], w[1] = 1-x, x
	}
	for i := range dst {
		dst[i] = int16(math.RoundToEven(float64(w[i] * one)))
	}
}

// cubic computes the weights of Keys' kernel with a = -0.75. Conversions to float32 forbid fused multiply-add.
func cubic(w []float32, x float32) {
	const a = float32(-0.75)
	inner := func(x float32) float32 {
		return float32(float32((float32((a+2)*x)-(a+3))*x)*x) + 1
	}
	w[0] = float32((float32((float32(a*(x+1))-5*a)*(x+1))+8*a)*(x+1)) - 4*a
	w[1] = inner(x)
	w[2] = inner(1 - x)
	w[3] = 1 - w[0] - w[1] - w[2]
}

// lanczos4 computes the weights of the Lanczos kernel of four lobes, divided by their sum.
func lanczos4(w []float32, x float32) {
	const root = 0.70710678118654752440084436210485
	turns := [8][2]float64{{1, 0}, {-root, -root}, {0, 1}, {root, -root}, {-1, 0}, {root, root}, {0, -1}, {-root, root}}
	sin, cos := math.Sincos(-float64(x+3) * math.Pi * 0.25)
	sum := float32(0)
	for i, t := range turns {
		d := x + 3 - float32(i)
		if math.Abs(float64(d)) < 1e-6 { // at an input
			w[i] = 1e30
		} else {
			y := -float64(d) * math.Pi * 0.25
			w[i] = float32((float64(t[0]*sin) + float64(t[1]*cos)) / float64(y*y))
		}
		sum += w[i]
	}
	sum = 1 / sum
	for i := range w {
		w[i] *= sum
	}
}

// row returns the row of the source for tap k of output i.
func (t *taps) row(i, k int) int { return min(max(int(t.at[i])+k, 0), t.span.In-1) }
