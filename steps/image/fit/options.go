package fit

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/kernels"
)

// options are the parameters of fit_image.
type options struct {
	files, bytes, reverse, geometry bool
	sizing
	maxPixels int
	table     [3][256]uint32 // normalised samples as bits of FP32, by channel of the output
	lines     *kernels.Lines // of table, by sample; nil for none
}

// sizing holds the parameters of the size.
type sizing struct {
	maxSide, minSide, multiple   int // limits; a side of 0 is none
	always                       bool
	padHeight                    int
	padRatio                     float64
	height                       int // 0 for limits
	minWidth, maxWidth, widthMul int
	widths                       bool
}

// maxSide is the largest side of an image, the limit of the decoders.
const maxSide = 65535

func parse(s *steps.Settings) (*options, error) {
	r := steps.Reader{Settings: s}
	o := &options{
		files: s.Params["input"] == file, bytes: s.Params["dtype"] == "uint8", reverse: s.Params["color"] == "bgr",
		geometry: s.Params["geometry"] == "true", maxPixels: r.Int("max_pixels", 1, 1<<30),
	}
	if s.Params["fit"] == limits {
		o.sizing = sizing{
			maxSide: r.Int("max_side", 0, maxSide), minSide: r.Int("min_side", 0, maxSide), multiple: r.Int("multiple", 1, maxSide),
			always: s.Params["round"] == "always", padHeight: r.Int("pad_height", 0, maxSide), padRatio: float64(r.Float("pad_ratio")),
		}
	} else {
		o.sizing = sizing{
			height: r.Int("height", 1, maxSide), minWidth: r.Int("min_width", 1, maxSide), maxWidth: r.Int("max_width", 0, maxSide),
			widthMul: r.Int("width_multiple", 1, maxSide), widths: s.Params["widths"] == "true",
		}
	}
	switch {
	case r.Err != nil:
		return nil, r.Err
	case o.padRatio < 0:
		return nil, s.Wrong("pad_ratio", "0 or a number above 0")
	case o.height == 0 && s.Params["widths"] == "true":
		return nil, s.Wrong("widths", "false with fit limits")
	case o.maxWidth > 0 && o.maxWidth < o.minWidth:
		return nil, s.Wrong("max_width", "0 or at least min_width, "+s.Params["min_width"])
	}
	return o, o.normalise(s)
}

// normalise fills the table of samples.
func (o *options) normalise(s *steps.Settings) error {
	scale, err := numbers(s, "scale", 1)
	if err != nil {
		return err
	}
	mean, err := numbers(s, "mean", 3)
	if err != nil {
		return err
	}
	std, err := numbers(s, "std", 3)
	if err != nil {
		return err
	}
	for c := range o.table {
		if float32(std[c]) == 0 {
			return s.Wrong("std", "numbers other than 0")
		}
		for v := range o.table[c] {
			o.table[c][v] = math.Float32bits(normalised(v, scale[0], mean[c], std[c], s.Params["rounding"]))
		}
	}
	o.lines = kernels.NewLines(o.tables())
	return nil
}

// sample returns the sample of a pixel that channel c of the output is made of.
func (o *options) sample(c int) int {
	if o.reverse {
		return 2 - c
	}
	return c
}

// tables returns the tables by sample.
func (o *options) tables() *[3]*[256]uint32 {
	var t [3]*[256]uint32
	for c := range t {
		t[o.sample(c)] = &o.table[c]
	}
	return &t
}

// normalised normalises a sample. numpy multiplies with a factor of FP32 where the means are of FP64.
func normalised(v int, scale, mean, std float64, rounding string) float32 {
	switch rounding {
	case "each":
		return (float32(float64(v)*scale) - float32(mean)) / float32(std)
	case "scaled":
		return float32((float64(float32(v)*float32(scale)) - mean) / std)
	}
	return float32((float64(float64(v)*scale) - mean) / std)
}

// numbers reads one number for all channels, or one for each of n channels. A number may be a fraction.
func numbers(s *steps.Settings, key string, n int) (out [3]float64, err error) {
	fields := strings.Split(s.Params[key], ",")
	if len(fields) != 1 && len(fields) != n {
		return out, s.Wrong(key, fmt.Sprintf("1 or %d numbers separated by commas", n))
	}
	for i := range out {
		num, den, found := strings.Cut(fields[min(i, len(fields)-1)], "/")
		v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if found && err == nil {
			var d float64
			d, err = strconv.ParseFloat(strings.TrimSpace(den), 64)
			v /= d
		}
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return out, s.Wrong(key, "numbers separated by commas, for example 0.5 or 1/255")
		}
		out[i] = v
	}
	return out, nil
}

// frame is where the resized image lies in the output: w x h pixels from the left edge and row top on.
type frame struct{ w, h, top, outW, outH int }

// maxOutput is the most pixels of the output.
const maxOutput = 1 << 24

// frame returns the frame of an image of w x h pixels. width is that of the output with widths.
func (z *sizing) frame(w, h, width int) (frame, error) {
	var f frame
	if z.height > 0 {
		f = z.line(w, h, width)
	} else {
		f = z.limited(w, h)
	}
	switch {
	case f.w < 1 || f.h < 1 || f.outW < 1:
		return f, fmt.Errorf("an image of %d x %d pixels would become %d x %d, expected at least one pixel", w, h, f.w, f.h)
	case f.outW > maxOutput/f.outH:
		return f, fmt.Errorf("an image of %d x %d pixels would become %d x %d, expected at most %d pixels", w, h, f.outW, f.outH, maxOutput)
	}
	return f, nil
}

// line returns the frame at a height.
func (z *sizing) line(w, h, width int) frame {
	f := frame{h: z.height, outH: z.height, w: int(math.Ceil(float64(z.height) * (float64(w) / float64(h))))}
	if z.widths {
		f.outW = width
		f.w = min(f.w, width)
		return f
	}
	if z.maxWidth > 0 {
		f.w = min(f.w, z.maxWidth)
	}
	f.outW = (max(f.w, z.minWidth) + z.widthMul - 1) / z.widthMul * z.widthMul
	if z.maxWidth > 0 {
		f.outW = min(f.outW, z.maxWidth)
	}
	return f
}

// limited returns the frame within limits of the sides.
func (z *sizing) limited(w, h int) frame {
	resized := false
	if long := max(w, h); z.maxSide > 0 && long > z.maxSide {
		r := float64(z.maxSide) / float64(long)
		w, h, resized = z.scaled(w, r), z.scaled(h, r), true
	}
	if short := min(w, h); z.minSide > 0 && short < z.minSide && short > 0 {
		r := float64(z.minSide) / float64(short)
		w, h, resized = z.scaled(w, r), z.scaled(h, r), true
	}
	if !resized && z.always {
		w, h = z.scaled(w, 1), z.scaled(h, 1)
	}
	f := frame{w: w, h: h, outW: w, outH: h}
	if h <= z.padHeight || z.padRatio > 0 && float64(w)/float64(h) > z.padRatio {
		high := z.padHeight
		if z.padRatio > 0 {
			high = max(int(float64(w)/z.padRatio), high)
		}
		f.top = max(2*high-h, h-2*high) / 2
		f.outH = h + 2*f.top
	}
	return f
}

// scaled returns a side times a factor, rounded down to whole pixels and then to the nearest multiple, half to even.
func (z *sizing) scaled(n int, factor float64) int {
	return int(math.RoundToEven(float64(int(float64(n)*factor))/float64(z.multiple))) * z.multiple
}
