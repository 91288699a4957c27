package resize

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/opencv"
)

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

// window is Pillow's HAMMING: the middle lobe of the sinc in a Hamming window, whose two
// constants are float32.
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
