package image

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/opencv"
)

// filter is how samples are weighed: an index of filters.
type filter uint8

const (
	nearest filter = iota
	area
	bilinear
	hamming
	bicubic
	lanczos
	cvNearest
	cvLinear
	cvCubic
	cvArea
	cvLanczos4
)

// filters are the kernels of Pillow, then the samplings of OpenCV.
var filters = [...]struct {
	name     string // The value of the parameter resize.
	support  float64
	weight   func(x float64) float64
	opencv   bool
	sampling opencv.Sampling
}{
	nearest:    {name: "nearest"},
	area:       {name: "area", support: 0.5, weight: box},
	bilinear:   {name: "bilinear", support: 1, weight: triangle},
	hamming:    {name: "hamming", support: 1, weight: window},
	bicubic:    {name: "bicubic", support: 2, weight: cubic},
	lanczos:    {name: "lanczos", support: 3, weight: lobes},
	cvNearest:  {name: "cv_nearest", opencv: true, sampling: opencv.Nearest},
	cvLinear:   {name: "cv_linear", opencv: true, sampling: opencv.Linear},
	cvCubic:    {name: "cv_cubic", opencv: true, sampling: opencv.Cubic},
	cvArea:     {name: "cv_area", opencv: true, sampling: opencv.Area},
	cvLanczos4: {name: "cv_lanczos4", opencv: true, sampling: opencv.Lanczos4},
}

// filterNames are the names in their order.
var filterNames = newFilterNames()

func newFilterNames() []string {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = f.name
	}
	return names
}

// opencv says whether a filter is a sampling of OpenCV.
func (f filter) opencv() bool { return filters[f].opencv }

// support is how far the kernel of a filter of Pillow reaches to either side.
func (f filter) support() float64 { return filters[f].support }

// The kernels at a distance. Conversions to float64 forbid fused multiply-add, which
// would round differently on some processors.

// box is Pillow's BOX.
func box(x float64) float64 {
	if x > -0.5 && x <= 0.5 {
		return 1
	}
	return 0
}

func triangle(x float64) float64 { return max(1-math.Abs(x), 0) }

// window is the middle lobe of the sinc in Hamming's window, whose two numbers Pillow
// has as float32.
func window(x float64) float64 {
	const a, b = float64(float32(0.54)), float64(float32(0.46))
	if x = math.Abs(x); x >= 1 {
		return 0
	}
	return float64(sinc(x) * (a + float64(b*math.Cos(float64(x*math.Pi)))))
}

// cubic is Keys' kernel with a = -0.5.
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

// lobes are three lobes of the sinc.
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
