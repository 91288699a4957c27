package image

import "github.com/tutti-server/tutti/steps"

// outputParams are what every step of the package has: how a picture becomes the
// output.
func outputParams() []steps.Param {
	return []steps.Param{
		presetParam(),
		{Key: "width", Doc: "Width of the output in pixels.", Required: true, Sample: "224"},
		{Key: "height", Doc: "Height of the output in pixels.", Required: true, Sample: "224"},
		{Key: "fit", Doc: "How the picture comes to that size: stretched (exact); resized by its shorter side, then cut or padded (short_side); " +
			"resized to lie inside, then padded (letterbox); only cut or padded (none).", Default: "exact", Values: fitNames},
		{Key: "short_side", Doc: "Length of the shorter side with fit short_side; 0 is the smaller of width and height.", Default: "0"},
		{Key: "anchor", Doc: "Where a picture that is cut or padded stands.", Default: "center", Values: []string{"center", "top_left"}},
		{Key: "fill", Doc: "Sample, 0 to 255, of pixels that no picture covers: one number, or one per channel separated by commas.", Default: "0"},
		{Key: "resize", Doc: "Filter of the resize, as Pillow's of that name (area is Pillow's box), or with cv_ an interpolation of " +
			"OpenCV's resize: cv_linear is INTER_LINEAR.", Default: "bilinear", Values: filterNames},
		{Key: "antialias", Doc: "Whether a filter of Pillow widens when the image shrinks, as it does there. With false it does not: bilinear is " +
			"then within 1 of OpenCV's INTER_LINEAR and PyTorch's interpolate, the others are not like either. " +
			"The filters of OpenCV never widen.", Default: "true", Values: []string{"true", "false"}},
		{Key: "reducing_gap", Doc: "As of Pillow's resize, a number of at least 1: an image that shrinks by twice this number or more is first averaged over " +
			"boxes of whole pixels, so that the filter still has this many times the output; none for no such step.", Default: "none"},
		{Key: "color", Doc: "Colour of the output.", Default: "rgb", Values: spaceNames},
		{Key: "layout", Doc: "Order of the output's dimensions.", Default: "nchw", Values: []string{"nchw", "nhwc"}},
		{Key: "dtype", Doc: "Type of the output; uint8 gives samples as they are.", Default: "fp32", Values: []string{"fp32", "fp16", "uint8"}},
		{Key: "scale", Doc: "Factor on the 8-bit samples, a number or a fraction.", Default: "1/255"},
		{Key: "mean", Doc: "Subtracted after scaling: one number, or one per channel of the output separated by commas.", Default: "0"},
		{Key: "std", Doc: "Divides after the mean is subtracted: one number, or one per channel separated by commas.", Default: "1"},
		{
			Key: "rounding", Doc: "Whether the normalised sample is rounded once, or after each of the three operations as in PyTorch.",
			Default: "once", Values: []string{"once", "each"},
		},
	}
}

// cropParams cut a box out of the picture first, and tell where it went.
func cropParams() []steps.Param {
	return []steps.Param{
		{Key: "crop", Doc: "Box that is cut out of the picture before the resize: left, top, right and bottom in pixels, separated by commas. " +
			"What lies outside the picture is left out; a box with nothing inside fails the request.", Default: "none"},
		{Key: "geometry", Doc: "Adds an output that takes points of the source to the output.", Default: "false", Values: []string{"true", "false"}},
	}
}

// pixelsParam is for the step that decodes nothing.
func pixelsParam() steps.Param {
	return steps.Param{Key: "max_pixels", Doc: "Largest image accepted, width times height.", Default: "67108864"}
}
