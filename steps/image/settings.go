package image

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tutti/core/tensor"
	"tutti/steps"
)

// maxOutput bounds the pixels of the output, so that a slip of the keyboard in
// the configuration cannot ask for gigabytes per request.
const maxOutput = 1 << 24

// options are the parameters, parsed.
type options struct {
	width, height int
	gray          bool
	layout        layout
	decoding      decoding
}

func parse(s *steps.Settings) (*options, error) {
	o := &options{gray: s.Params["color"] == "gray"}
	o.layout.planes = s.Params["layout"] == "nchw"
	o.layout.float = s.Params["dtype"] == "fp32"
	var err error
	if o.width, err = s.Int("width", 1); err != nil {
		return nil, err
	}
	if o.height, err = s.Int("height", 1); err != nil {
		return nil, err
	}
	if o.width > maxOutput || o.height > maxOutput || o.width*o.height > maxOutput {
		return nil, fmt.Errorf("parameters 'width' and 'height' of model '%s' ask for %d x %d pixels, expected at most %d together",
			s.Model, o.width, o.height, maxOutput)
	}
	if o.decoding, err = parseDecoding(s); err != nil {
		return nil, err
	}
	return o, o.parseNumbers(s)
}

// parseNumbers reads scale, mean and std and fills the tables.
func (o *options) parseNumbers(s *steps.Settings) error {
	if !o.layout.float {
		return refuseNumbers(s)
	}
	scale, err := fraction(s.Params["scale"])
	if err != nil {
		return wrong(s, "scale", "a number or a fraction such as 1/255")
	}
	mean, err := o.list(s, "mean")
	if err != nil {
		return err
	}
	std, err := o.list(s, "std")
	if err != nil {
		return err
	}
	for _, v := range std {
		if v == 0 {
			return wrong(s, "std", "numbers other than 0")
		}
	}
	o.layout.normalise(scale, mean, std)
	return nil
}

// refuseNumbers rejects a normalisation that UINT8 could not hold, rather than
// to ignore it.
func refuseNumbers(s *steps.Settings) error {
	for _, p := range params() {
		switch v := s.Params[p.Key]; p.Key {
		case "scale", "mean", "std":
			if v != p.Default {
				return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected none with dtype uint8, which is not normalised",
					p.Key, s.Model, v)
			}
		}
	}
	return nil
}

// list reads one number for all channels, or one for each.
func (o *options) list(s *steps.Settings, key string) ([3]float64, error) {
	var out [3]float64
	fields := strings.Split(s.Params[key], ",")
	n := o.channels()
	if len(fields) != 1 && len(fields) != n {
		return out, wrong(s, key, fmt.Sprintf("1 or %d numbers separated by commas", n))
	}
	for i := range out {
		v, err := fraction(fields[min(i, len(fields)-1)])
		if err != nil {
			return out, wrong(s, key, "numbers separated by commas")
		}
		out[i] = v
	}
	return out, nil
}

func wrong(s *steps.Settings, key, expected string) error {
	return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected %s", key, s.Model, s.Params[key], expected)
}

// fraction parses a finite number, or two with a slash between.
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

func (o *options) channels() int {
	if o.gray {
		return 1
	}
	return 3
}

func (o *options) dtype() tensor.DType {
	if o.layout.float {
		return tensor.FP32
	}
	return tensor.Uint8
}

// shape is the output's, without a batch dimension.
func (o *options) shape() tensor.Shape {
	c, h, w := int64(o.channels()), int64(o.height), int64(o.width)
	if o.layout.planes {
		return tensor.Of(c, h, w)
	}
	return tensor.Of(h, w, c)
}
