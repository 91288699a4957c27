package image

import "math"

// filter is how samples are weighed: Pillow's kernels by the names of the
// parameter resize.
type filter uint8

const (
	nearest filter = iota
	area           // Pillow's BOX.
	bilinear
	bicubic // Keys' kernel with a = -0.5.
	lanczos // Three lobes.
)

// filterNames are the filters in their order.
var filterNames = []string{"nearest", "area", "bilinear", "bicubic", "lanczos"}

// support is how far the kernel reaches to either side.
func (f filter) support() float64 {
	switch f {
	case nearest:
		return 0
	case area:
		return 0.5
	case bilinear:
		return 1
	case bicubic:
		return 2
	case lanczos:
	}
	return 3
}

// weight is the kernel at a distance. Conversions to float64 forbid fused
// multiply-add, which would round differently on some processors.
func (f filter) weight(x float64) float64 {
	switch f {
	case nearest, area:
		if x > -0.5 && x <= 0.5 {
			return 1
		}
		return 0
	case bilinear:
		return max(1-math.Abs(x), 0)
	case bicubic:
		return cubic(math.Abs(x))
	case lanczos:
	}
	if x < -3 || x >= 3 {
		return 0
	}
	return float64(sinc(x) * sinc(x/3))
}

func cubic(x float64) float64 {
	const a = -0.5
	switch {
	case x < 1:
		return float64(float64((float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return float64((float64((float64((x-5)*x)+8)*x) - 4) * a)
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}
