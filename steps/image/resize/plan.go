package resize

import "math"

// Numbers are what the weights of an axis with a filter of Pillow follow from. Code that computes the weights elsewhere, for example on
// a GPU, gets them from Measure.
type Numbers struct {
	// Size is the most inputs of an output, Scale the inputs per output, Support the reach of the filter in inputs, Inverse the factor on
	// the distance between an input and the centre of an output.
	Size                    int
	Scale, Support, Inverse float64
	// Low and High are the first input that an output needs and the one after the last.
	Low, High int
}

// Measure returns the numbers of an axis. f must be a filter of Pillow. sharp is Job.Sharp.
func Measure(f Filter, sharp bool, s Span) Numbers {
	n := Numbers{Scale: float64(s.In) / float64(s.Out)}
	stretch := math.Max(n.Scale, 1)
	if sharp {
		stretch = 1
	}
	n.Support, n.Inverse = float64(filters[f].support*stretch), 1/stretch
	if f == Nearest {
		n.Size, n.High = 1, s.In // positions are summed up from the first output on
		return n
	}
	n.Size = int(math.Ceil(n.Support))*2 + 1
	n.Low, _ = n.window(s, 0)
	_, n.High = n.window(s, s.N-1)
	return n
}

// window returns the first input of output i, counted from s.From, and the one after the last.
func (n *Numbers) window(s Span, i int) (low, high int) {
	center := float64((float64(s.From+i) + 0.5) * n.Scale)
	return max(int(float64(center-n.Support)+0.5), 0), min(int(float64(center+n.Support)+0.5), s.In)
}

// ColumnsFirst reports whether Pillow takes the pass down the columns before the one along the rows. The order decides the last bit: Pillow
// 13 takes the columns first when the height falls by more than twice as many pixels as the width.
func ColumnsFirst(x, y Span) bool { return y.In-y.Out > 0 && y.In-y.Out > 2*(x.In-x.Out) }
