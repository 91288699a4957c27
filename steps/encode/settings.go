package encode

import (
	"fmt"

	"github.com/tutti-server/tutti/steps"
)

// options are the parameters, parsed.
type options struct {
	format    string
	quality   int
	channels  int
	planes    bool // NCHW: channels first
	float     bool
	scale     float32
	maxPixels int64
}

func parse(s *steps.Settings) (*options, error) {
	o := &options{format: s.Params["format"], planes: s.Params["layout"] == "nchw", float: s.Params["dtype"] == "fp32"}
	o.channels = map[string]int{"gray": 1, "rgb": 3, "rgba": 4}[s.Params["color"]]
	if o.channels == 4 && o.format == "jpeg" {
		return nil, fmt.Errorf("parameter 'color' of model '%s' is 'rgba', expected rgb or gray with format jpeg, which has no alpha", s.Model)
	}
	var err error
	if o.quality, err = s.Int("quality", 1); err != nil {
		return nil, err
	}
	if o.quality > 100 {
		return nil, fmt.Errorf("parameter 'quality' of model '%s' is %d, expected at most 100", s.Model, o.quality)
	}
	if o.quality != 75 && o.format != "jpeg" {
		return nil, fmt.Errorf("parameter 'quality' of model '%s' is %d, expected none with format %s, which is lossless", s.Model, o.quality, o.format)
	}
	scale, err := s.Float("scale")
	if err != nil {
		return nil, err
	}
	if scale != 255 && !o.float {
		return nil, fmt.Errorf("parameter 'scale' of model '%s' is '%s', expected none with dtype uint8", s.Model, s.Params["scale"])
	}
	o.scale = float32(scale)
	pixels, err := s.Int("max_pixels", 1)
	o.maxPixels = int64(pixels)
	return o, err
}

// maxSide returns the longest side that the format can hold, in pixels.
func (o *options) maxSide() int64 {
	switch o.format {
	case "jpeg":
		return 65535
	case "webp":
		return 16384
	}
	return 1<<31 - 1
}
