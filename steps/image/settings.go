package image

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/decode"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// maxOutput is the most pixels of the output, so that a typing error in the configuration
// cannot ask for gigabytes per request.
const maxOutput = 1 << 24

// options are the parameters, parsed.
type options struct {
	framing
	layout   layout
	space    raster.Space
	filter   resize.Filter
	sharp    bool        // no antialiasing
	gap      float64     // reducing_gap; 0 for none
	crop     resize.Rect // of the source; none where its width is 0
	geometry bool
	files    bool // the input is a file, not pixels
	boxes    int  // most boxes of an image; 0 where the step does not crop by boxes
	decoding decode.Options
}

// parse reads the parameters.
func parse(s *steps.Settings) (*options, error) {
	o := &options{
		space:    raster.Space(index(raster.SpaceNames, s.Params["color"])),
		filter:   resize.Filter(index(resize.FilterNames, s.Params["resize"])),
		sharp:    s.Params["antialias"] == "false",
		geometry: s.Params["geometry"] == "true",
		framing:  framing{fit: fit(index(fitNames, s.Params["fit"])), corner: s.Params["anchor"] == "top_left"},
	}
	decoding := func(s *steps.Settings) (err error) {
		o.decoding, err = parseDecoding(s)
		return err
	}
	for _, parse := range []func(*steps.Settings) error{o.parseSize, o.parseGap, decoding, o.parseCrop} {
		if err := parse(s); err != nil {
			return nil, err
		}
	}
	o.layout = layout{
		width: o.width, height: o.height, ch: o.space.Channels(), order: o.space.Order(),
		planes: s.Params["layout"] == "nchw", dtype: dtypes[s.Params["dtype"]],
	}
	return o, o.parseNumbers(s)
}

// dtypes are the types of the output by name.
var dtypes = map[string]tensor.DType{"fp32": tensor.FP32, "fp16": tensor.FP16, "uint8": tensor.Uint8}

// index returns the index of a value that Resolve has checked among those allowed.
func index(names []string, name string) int { return max(slices.Index(names, name), 0) }

func (o *options) parseSize(s *steps.Settings) (err error) {
	if o.width, err = s.Int("width", 1); err != nil {
		return err
	}
	if o.height, err = s.Int("height", 1); err != nil {
		return err
	}
	expected := ""
	if o.width > maxOutput || o.height > maxOutput || o.width*o.height > maxOutput {
		expected = fmt.Sprintf("at most %d together", maxOutput)
	} else if o.width > decode.MaxSide || o.height > decode.MaxSide {
		expected = fmt.Sprintf("sides of at most %d", decode.MaxSide)
	}
	if expected != "" {
		return fmt.Errorf("parameters 'width' and 'height' of model '%s' ask for %d x %d pixels, expected %s", s.Model, o.width, o.height, expected)
	}
	if o.short, err = s.Int("short_side", 0); err != nil {
		return err
	}
	if o.short > decode.MaxSide {
		return s.Wrong("short_side", fmt.Sprintf("at most %d", decode.MaxSide))
	}
	if o.short > 0 && o.fit != shortSide {
		return s.Wrong("short_side", "none without fit short_side")
	}
	if o.short == 0 {
		o.short = min(o.width, o.height)
	}
	return nil
}

// parseGap reads reducing_gap; 0 is none.
func (o *options) parseGap(s *steps.Settings) (err error) {
	if s.Params["reducing_gap"] == "none" {
		return nil
	}
	o.gap, err = s.Float("reducing_gap")
	switch {
	case err != nil || o.gap < 1:
		return s.Wrong("reducing_gap", "none or a number of at least 1")
	case o.filter.OpenCV() || o.sharp:
		return s.Wrong("reducing_gap", "none with antialias false or a filter of OpenCV")
	}
	return nil
}

// shape returns the shape of the output without the batch dimension.
func (o *options) shape() tensor.Shape {
	c, h, w := int64(o.layout.ch), int64(o.height), int64(o.width)
	if o.layout.planes {
		return tensor.Of(c, h, w)
	}
	return tensor.Of(h, w, c)
}

// parseNumbers reads scale, mean, std and fill, and fills the tables of the layout.
func (o *options) parseNumbers(s *steps.Settings) error {
	fill, err := o.list(s, "fill")
	if err != nil {
		return err
	}
	for c, v := range fill {
		if v < 0 || v > 255 || v != math.Trunc(v) {
			return s.Wrong("fill", "integers from 0 to 255")
		}
		o.layout.blank[c] = byte(v)
	}
	if o.layout.dtype == tensor.Uint8 { // could not hold normalised samples
		o.layout.prepare(nil)
		for _, p := range outputParams() {
			if v := s.Params[p.Key]; slices.Contains([]string{"scale", "mean", "std"}, p.Key) && v != p.Default {
				return s.Wrong(p.Key, "none with dtype uint8, which is not normalised")
			}
		}
		return nil
	}
	a := arithmetic{each: s.Params["rounding"] == "each"}
	if a.scale, err = fraction(s.Params["scale"]); err != nil {
		return s.Wrong("scale", "a number or a fraction such as 1/255")
	}
	if a.mean, err = o.list(s, "mean"); err != nil {
		return err
	}
	if a.std, err = o.list(s, "std"); err != nil {
		return err
	}
	for _, v := range a.std {
		if v == 0 || a.each && float32(v) == 0 {
			return s.Wrong("std", "numbers other than 0")
		}
	}
	o.layout.prepare(&a)
	return nil
}

// list reads one number for all channels, or one for each channel.
func (o *options) list(s *steps.Settings, key string) ([3]float64, error) {
	var out [3]float64
	fields := strings.Split(s.Params[key], ",")
	n := o.space.Channels()
	if len(fields) != 1 && len(fields) != n {
		return out, s.Wrong(key, fmt.Sprintf("1 or %d numbers separated by commas", n))
	}
	for i := range out {
		v, err := fraction(fields[min(i, len(fields)-1)])
		if err != nil {
			return out, s.Wrong(key, "numbers separated by commas")
		}
		out[i] = v
	}
	return out, nil
}

// parseCrop reads left, top, right and bottom; a width of 0 is none.
func (o *options) parseCrop(s *steps.Settings) error {
	text, ok := s.Params["crop"]
	if !ok || text == "none" {
		return nil
	}
	var v [4]int
	fields := strings.Split(text, ",")
	for i, field := range fields {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || len(fields) != len(v) || n < 0 || n > decode.MaxSide {
			return s.Wrong("crop", "none or left, top, right and bottom in pixels, separated by commas")
		}
		v[i] = n
	}
	if o.crop = (resize.Rect{X: v[0], Y: v[1], W: v[2] - v[0], H: v[3] - v[1]}); o.crop.W <= 0 || o.crop.H <= 0 {
		return s.Wrong("crop", "left, top, right and bottom of a box that is not empty")
	}
	return nil
}

// wrong returns the error of a parameter's value.
// fraction parses a finite number or a quotient of two, for example "1/255".
func fraction(text string) (float64, error) {
	num, den, found := strings.Cut(text, "/")
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if found && err == nil {
		var d float64
		d, err = strconv.ParseFloat(strings.TrimSpace(den), 64)
		v /= d
	}
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = strconv.ErrRange
	}
	return v, err
}

// decodingParams declares the parameters of decoding.
func decodingParams() []steps.Param {
	return []steps.Param{
		{Key: "max_pixels", Doc: "Largest image accepted, width times height, checked before it is decoded. " +
			"A pixel takes up to 11 bytes while its image is decoded, 15 in a progressive JPEG. " +
			"Images are decoded at the same time as long as they have no more pixels together, or 4194304 per core if that is more.", Default: "67108864"},
		{Key: "max_bytes", Doc: "Largest file accepted.", Default: "67108864"},
		{Key: "orientation", Doc: "Whether an image is turned as its EXIF orientation says, or left as it is stored.", Default: "exif", Values: []string{"exif", "ignore"}},
		{Key: "alpha", Doc: "Treatment of transparency: drop it and keep the stored colours, or composite the image over the background.", Default: "drop", Values: []string{"drop", "composite"}},
		{Key: "background", Doc: "Colour under transparent pixels with alpha composite: red, green and blue from 0 to 255.", Default: "255,255,255"},
		{
			Key: "jpeg_decoder", Doc: "Has no effect: every value selects the built-in JPEG decoder. Accepted so that configurations written for older versions still load.",
			Default: "auto", Values: []string{"auto", "turbojpeg", "go"},
		},
		{Key: "jpeg_scale", Doc: "With auto, a JPEG file is decoded at 1/2, 1/4 or 1/8 of its size where that is not smaller than the output. " +
			"This takes a fifth to a half less CPU for large files and gives slightly different pixels (those of Pillow's draft mode).", Default: "full", Values: []string{"full", "auto"}},
	}
}

// parseDecoding reads the parameters of decodingParams. A step that takes pixels has max_pixels only.
func parseDecoding(s *steps.Settings) (d decode.Options, err error) {
	pixels, err := s.Int("max_pixels", 1)
	d.MaxPixels = int64(pixels)
	if _, files := s.Params["max_bytes"]; err != nil || !files {
		return d, err
	}
	size, err := s.Int("max_bytes", 1)
	if err != nil {
		return d, err
	}
	d.MaxBytes, d.Turn, d.Blend = int64(size), s.Params["orientation"] == "exif", s.Params["alpha"] == "composite"
	d.Reduce = s.Params["jpeg_scale"] == "auto"
	d.Background, err = parseColor(s, "background")
	return d, err
}

// parseColor reads red, green and blue, from 0 to 255.
func parseColor(s *steps.Settings, key string) (c [3]byte, err error) {
	parts := strings.Split(s.Params[key], ",")
	for i := range c {
		v, err := strconv.ParseUint(strings.TrimSpace(parts[min(i, len(parts)-1)]), 10, 8)
		if err != nil || len(parts) != len(c) {
			return c, s.Wrong(key, "three numbers from 0 to 255, separated by commas")
		}
		c[i] = byte(v)
	}
	return c, nil
}
