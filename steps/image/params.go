package image

import (
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// outputParams are the parameters of every step of the package: how an image becomes the output.
func outputParams() []steps.Param {
	return []steps.Param{
		presetParam(),
		{Key: "width", Doc: "Width of the output in pixels.", Required: true, Sample: "224"},
		{Key: "height", Doc: "Height of the output in pixels.", Required: true, Sample: "224"},
		{Key: "fit", Doc: "How the image is brought to that size: stretched (exact); resized by its shorter side, then cropped or padded (short_side); " +
			"resized to fit inside, then padded (letterbox); only cropped or padded (none).", Default: "exact", Values: fitNames},
		{Key: "short_side", Doc: "Length of the shorter side with fit short_side; 0 is the smaller of width and height.", Default: "0"},
		{Key: "anchor", Doc: "Position of an image that is cropped or padded.", Default: "center", Values: []string{"center", "top_left"}},
		{Key: "fill", Doc: "Sample, 0 to 255, of pixels that the image does not cover: one number, or one per channel separated by commas.", Default: "0"},
		{Key: "resize", Doc: "Filter of the resize: Pillow's of that name (area is Pillow's box), or with cv_ an interpolation of " +
			"OpenCV's resize: cv_linear is INTER_LINEAR.", Default: "bilinear", Values: resize.FilterNames},
		{Key: "antialias", Doc: "Whether a filter of Pillow widens when the image shrinks, as in Pillow. With false, bilinear is " +
			"within 1 of OpenCV's INTER_LINEAR and PyTorch's interpolate; the other filters match neither. " +
			"The filters of OpenCV never widen.", Default: "true", Values: []string{"true", "false"}},
		{Key: "reducing_gap", Doc: "reducing_gap of Pillow's resize, a number of at least 1: an image that shrinks by twice this number or more is first averaged over " +
			"boxes of whole pixels, down to this many times the output; none turns that off.", Default: "none"},
		{Key: "color", Doc: "Colour space of the output.", Default: "rgb", Values: raster.SpaceNames},
		{Key: "layout", Doc: "Order of the output's dimensions.", Default: "nchw", Values: []string{"nchw", "nhwc"}},
		{Key: "dtype", Doc: "Type of the output; uint8 gives the samples without normalisation.", Default: "fp32", Values: []string{"fp32", "fp16", "uint8"}},
		{Key: "scale", Doc: "Factor on the 8-bit samples, a number or a fraction.", Default: "1/255"},
		{Key: "mean", Doc: "Subtracted after scaling: one number, or one per channel of the output separated by commas.", Default: "0"},
		{Key: "std", Doc: "Divides after the mean is subtracted: one number, or one per channel separated by commas.", Default: "1"},
		{
			Key: "rounding", Doc: "Whether the normalised sample is rounded once, or after each of the three operations as in PyTorch.",
			Default: "once", Values: []string{"once", "each"},
		},
	}
}

// cropParams crop the image first, and add the output geometry.
func cropParams() []steps.Param {
	return []steps.Param{
		{Key: "crop", Doc: "Box that is cropped from the image before the resize: left, top, right and bottom in pixels, separated by commas. " +
			"The box is cut off at the edges of the image; a box outside of it fails the request.", Default: "none"},
		{Key: "geometry", Doc: "Adds the output geometry, which maps points of the source to the output.", Default: "false", Values: []string{"true", "false"}},
	}
}

// pixelsParam is the limit of the step that does not decode.
func pixelsParam() steps.Param {
	return steps.Param{Key: "max_pixels", Doc: "Largest image accepted, width times height.", Default: "67108864"}
}
