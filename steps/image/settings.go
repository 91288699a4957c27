package image

import (
	"fmt"
	"slices"

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
	}
	o.fit = fit(index(fitNames, s.Params["fit"]))
	o.corner = s.Params["anchor"] == "top_left"
	if err := o.parseSize(s); err != nil {
		return nil, err
	}
	var err error
	if o.gap, err = o.parseGap(s); err != nil {
		return nil, err
	}
	if o.decoding, err = parseLimits(s); err != nil {
		return nil, err
	}
	if o.crop, err = parseCrop(s); err != nil {
		return nil, err
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
	if o.width > maxOutput || o.height > maxOutput || o.width*o.height > maxOutput {
		return fmt.Errorf("parameters 'width' and 'height' of model '%s' ask for %d x %d pixels, expected at most %d together",
			s.Model, o.width, o.height, maxOutput)
	}
	if o.width > decode.MaxSide || o.height > decode.MaxSide {
		return fmt.Errorf("parameters 'width' and 'height' of model '%s' ask for %d x %d pixels, expected sides of at most %d",
			s.Model, o.width, o.height, decode.MaxSide)
	}
	if o.short, err = s.Int("short_side", 0); err != nil {
		return err
	}
	if o.short > decode.MaxSide {
		return wrong(s, "short_side", fmt.Sprintf("at most %d", decode.MaxSide))
	}
	if o.short > 0 && o.fit != shortSide {
		return wrong(s, "short_side", "none without fit short_side")
	}
	if o.short == 0 {
		o.short = min(o.width, o.height)
	}
	return nil
}

// parseGap reads reducing_gap; 0 is none.
func (o *options) parseGap(s *steps.Settings) (float64, error) {
	if s.Params["reducing_gap"] == "none" {
		return 0, nil
	}
	gap, err := s.Float("reducing_gap")
	switch {
	case err != nil || gap < 1:
		return 0, wrong(s, "reducing_gap", "none or a number of at least 1")
	case o.filter.OpenCV() || o.sharp:
		return 0, wrong(s, "reducing_gap", "none with antialias false or a filter of OpenCV")
	}
	return gap, nil
}

// parseLimits reads the parameters of decoding, which a step that takes pixels has only one of.
func parseLimits(s *steps.Settings) (decode.Options, error) {
	if _, ok := s.Params["max_bytes"]; ok {
		return parseDecoding(s)
	}
	pixels, err := s.Int("max_pixels", 1)
	return decode.Options{MaxPixels: int64(pixels)}, err
}

// shape returns the shape of the output without the batch dimension.
func (o *options) shape() tensor.Shape {
	c, h, w := int64(o.layout.ch), int64(o.height), int64(o.width)
	if o.layout.planes {
		return tensor.Of(c, h, w)
	}
	return tensor.Of(h, w, c)
}
