package image

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/decode"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// parseNumbers reads scale, mean, std and fill, and fills the tables of the layout.
func (o *options) parseNumbers(s *steps.Settings) error {
	fill, err := o.list(s, "fill")
	if err != nil {
		return err
	}
	for c, v := range fill {
		if v < 0 || v > 255 || v != math.Trunc(v) {
			return wrong(s, "fill", "integers from 0 to 255")
		}
		o.layout.blank[c] = byte(v)
	}
	if o.layout.dtype == tensor.Uint8 {
		o.layout.prepare(nil)
		return refuseNumbers(s)
	}
	a, err := o.arithmetic(s)
	if err != nil {
		return err
	}
	o.layout.prepare(&a)
	return nil
}

func (o *options) arithmetic(s *steps.Settings) (a arithmetic, err error) {
	a.each = s.Params["rounding"] == "each"
	if a.scale, err = fraction(s.Params["scale"]); err != nil {
		return a, wrong(s, "scale", "a number or a fraction such as 1/255")
	}
	if a.mean, err = o.list(s, "mean"); err != nil {
		return a, err
	}
	if a.std, err = o.list(s, "std"); err != nil {
		return a, err
	}
	for _, v := range a.std {
		if v == 0 || a.each && float32(v) == 0 {
			return a, wrong(s, "std", "numbers other than 0")
		}
	}
	return a, nil
}

// refuseNumbers returns an error for a normalisation with UINT8, which could not hold it.
func refuseNumbers(s *steps.Settings) error {
	for _, p := range outputParams() {
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

// list reads one number for all channels, or one for each channel.
func (o *options) list(s *steps.Settings, key string) ([3]float64, error) {
	var out [3]float64
	fields := strings.Split(s.Params[key], ",")
	n := o.space.Channels()
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

// parseCrop reads left, top, right and bottom; a width of 0 is none.
func parseCrop(s *steps.Settings) (resize.Rect, error) {
	text, ok := s.Params["crop"]
	if !ok || text == "none" {
		return resize.Rect{}, nil
	}
	var v [4]int
	fields := strings.Split(text, ",")
	for i, field := range fields {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || len(fields) != len(v) || n < 0 || n > decode.MaxSide {
			return resize.Rect{}, wrong(s, "crop", "none or left, top, right and bottom in pixels, separated by commas")
		}
		v[i] = n
	}
	if len(fields) != len(v) || v[2] <= v[0] || v[3] <= v[1] {
		return resize.Rect{}, wrong(s, "crop", "left, top, right and bottom of a box that is not empty")
	}
	return resize.Rect{X: v[0], Y: v[1], W: v[2] - v[0], H: v[3] - v[1]}, nil
}

// wrong returns the error of a parameter's value.
func wrong(s *steps.Settings, key, expected string) error {
	return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected %s", key, s.Model, s.Params[key], expected)
}

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
