package resize

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/opencv"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// precision is the number of fraction bits of a weight, Pillow's PRECISION_BITS: 32 less 8 for
// the sample less 2 for the headroom of the sum.
const precision = 32 - 8 - 2

// half is added to a weighted sum so that it is rounded.
const half = 1 << (precision - 1)

// span is an axis with all that its weights depend on.
type span struct {
	Span
	extent float64 // the length of the input that the outputs cover, from its start
	filter Filter
	sharp  bool
}

// axis holds the filter weights of one axis. Output i, counted from span.From, is the sum over
// j of weight(i, j) times input first[i]+j. The weights are those of Pillow's
// precompute_coeffs: the kernel, stretched by the scale when shrinking, divided by its sum.
type axis struct {
	span
	size    int     // room per output in weights
	first   []int32 // the first input of each output, in ascending order
	count   []int32 // the number of inputs of each output
	weights []int32 // size per output, in fixed point
	scratch []float64
	// overlap is the largest number of outputs that are open at once when the inputs are
	// read in pairs: some of their inputs are read, some are not.
	overlap int
	used    int // the sum of all counts
}

// set computes the weights, unless they are those of the same span.
func (a *axis) set(s span) {
	if a.span == s {
		return
	}
	a.span = s
	a.first, a.count = raster.Sized(a.first, s.N), raster.Sized(a.count, s.N)
	if s.filter == Nearest {
		a.pick()
	} else {
		a.weigh()
	}
	a.overlap, a.used = a.countOpen(), 0
	for _, n := range a.count {
		a.used += int(n)
	}
}

// pick selects the input in which the centre of each output lies. The position is summed up as Pillow does, because the
// rounding shows on long axes. Beyond a million outputs, which no image has, it is multiplied.
func (a *axis) pick() {
	a.size = 1
	a.weights = raster.Sized(a.weights, a.N)
	scale := float64(a.In) / float64(a.Out)
	at, skip := float64(scale*0.5), a.From
	if skip > 1<<20 {
		at, skip = float64(scale*(float64(skip)+0.5)), 0
	}
	for range skip {
		at += scale
	}
	for i := range a.N {
		a.first[i], a.count[i], a.weights[i] = int32(min(int(at), a.In-1)), 1, 1<<precision
		at += scale
	}
}

// weigh computes the weights of a kernel.
func (a *axis) weigh() {
	scale := a.extent / float64(a.Out)
	stretch := math.Max(scale, 1)
	if a.sharp {
		stretch = 1
	}
	support := float64(filters[a.filter].support * stretch)
	a.size = int(math.Ceil(support))*2 + 1
	a.weights = raster.Sized(a.weights, a.N*a.size)
	a.scratch = raster.Sized(a.scratch, a.size)
	for i := range a.N {
		center := float64((float64(a.From+i) + 0.5) * scale)
		a.fill(i, center, support, 1/stretch)
	}
}

// countOpen returns overlap.
func (a *axis) countOpen() int {
	most, low, high := 0, 0, 0
	for j := int(a.first[0]) &^ 1; low < a.N; j += 2 {
		for high < a.N && int(a.first[high]) <= j+1 {
			high++
		}
		most = max(most, high-low)
		for low < high && a.end(low) <= j+2 {
			low++
		}
	}
	return most
}

// end returns the index after the last input of output i.
func (a *axis) end(i int) int { return int(a.first[i] + a.count[i]) }

// fill computes the weights of output i. The conversions to float64 forbid fused
// multiply-add, which rounds differently.
func (a *axis) fill(i int, center, support, inverse float64) {
	lo := max(int(float64(center-support)+0.5), 0)
	n := min(int(float64(center+support)+0.5), a.In) - lo
	sum := 0.0
	w, weight := a.scratch[:n], filters[a.filter].weight
	for j := range w {
		w[j] = weight(float64((float64(j+lo) - center + 0.5) * inverse))
		sum += w[j]
	}
	a.first[i], a.count[i] = int32(lo), int32(n)
	fixed := a.weights[i*a.size:][:n]
	for j, v := range w {
		if sum != 0 {
			v /= sum
		}
		fixed[j] = int32(math.Copysign(0.5, v) + float64(v*(1<<precision)))
	}
}

// taps returns the weights of output i.
func (a *axis) taps(i int) []int32 {
	return a.weights[i*a.size:][:a.count[i]]
}

// at returns the weight of input j in output i, 0 outside of its window.
func (a *axis) at(i, j int) int32 {
	k := j - int(a.first[i])
	if k < 0 || k >= int(a.count[i]) {
		return 0
	}
	return a.weights[i*a.size+k]
}

// Filter is a resampling filter.
type Filter uint8

// The filters: of Pillow (Area is its box), then of OpenCV.
const (
	Nearest Filter = iota
	Area
	Bilinear
	Hamming
	Bicubic
	Lanczos
	CVNearest
	CVLinear
	CVCubic
	CVArea
	CVLanczos4
)

// filters is indexed by Filter.
var filters = [...]struct {
	name     string  // the value of the parameter resize
	support  float64 // the reach of the kernel to either side, in samples
	weight   func(x float64) float64
	opencv   bool
	sampling opencv.Sampling
}{
	Nearest:    {name: "nearest"},
	Area:       {name: "area", support: 0.5, weight: box},
	Bilinear:   {name: "bilinear", support: 1, weight: triangle},
	Hamming:    {name: "hamming", support: 1, weight: window},
	Bicubic:    {name: "bicubic", support: 2, weight: cubic},
	Lanczos:    {name: "lanczos", support: 3, weight: lobes},
	CVNearest:  {name: "cv_nearest", opencv: true, sampling: opencv.Nearest},
	CVLinear:   {name: "cv_linear", opencv: true, sampling: opencv.Linear},
	CVCubic:    {name: "cv_cubic", opencv: true, sampling: opencv.Cubic},
	CVArea:     {name: "cv_area", opencv: true, sampling: opencv.Area},
	CVLanczos4: {name: "cv_lanczos4", opencv: true, sampling: opencv.Lanczos4},
}

// FilterNames are the names of the filters in their order, for example "cv_linear".
var FilterNames = newFilterNames()

func newFilterNames() []string {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = f.name
	}
	return names
}

// OpenCV reports whether a filter is one of OpenCV.
func (f Filter) OpenCV() bool { return filters[f].opencv }

// The kernels of Pillow's Resample.c, as functions of the distance in samples. Conversions
// to float64 forbid fused multiply-add, which rounds differently on some processors.

// box is Pillow's BOX.
func box(x float64) float64 {
	if x > -0.5 && x <= 0.5 {
		return 1
	}
	return 0
}

// triangle is Pillow's BILINEAR.
func triangle(x float64) float64 { return max(1-math.Abs(x), 0) }

// window is Pillow's HAMMING: the middle lobe of the sinc in a Hamming window, whose two constants are float32.
func window(x float64) float64 {
	const a, b = float64(float32(0.54)), float64(float32(0.46))
	if x = math.Abs(x); x >= 1 {
		return 0
	}
	return float64(sinc(x) * (a + float64(b*math.Cos(float64(x*math.Pi)))))
}

// cubic is Pillow's BICUBIC: Keys' kernel with a = -0.5.
func cubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return float64(float64((float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return float64((float64((float64((x-5)*x)+8)*x) - 4) * a)
	}
	return 0
}

// lobes is Pillow's LANCZOS: three lobes of the sinc.
func lobes(x float64) float64 {
	if x < -3 || x >= 3 {
		return 0
	}
	return float64(sinc(x) * sinc(x/3))
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}
