// Package fit holds the steps fit_image, which resizes images to sizes that follow from their own, and rotate_image.
package fit

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

const (
	imageName    = "IMAGE"
	widthName    = "WIDTH"
	outputName   = "image"
	geometryName = "geometry"
	geometrySize = 6
	file         = "file"
	limits       = "limits"
)

// NewFactory declares the step fit_image.
//
// Input IMAGE is UINT8 [h,w,3] or, with input file, an image file, BYTES [1]. Output image is UINT8 [H,W,3] or FP32 [3,H,W].
// The optional output geometry is that of decode_resize. With widths there is one more input, WIDTH, INT32 [1].
//
// The rows of one request must give images of one size; requests of different sizes may share a batch.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "fit_image",
		Doc: "Resizes an image to a size that follows from its own, so that the output's size depends on the input: within limits of its sides, or to a height " +
			"with the width that keeps the ratio, padded. The resize has the bits of OpenCV's INTER_LINEAR. The steps of a text reader before its networks are " +
			"settings of this step. All images of a request must get the same size.",
		Params: slices.Concat([]steps.Param{
			{Key: "input", Doc: "Whether the image is a file or UINT8 pixels.", Default: "pixels", Values: []string{"pixels", file}},
			{Key: "color", Doc: "Order of the samples: as in the input, which is RGB for a file (rgb), or reversed (bgr).", Default: "rgb", Values: []string{"rgb", "bgr"}},
			{Key: "fit", Doc: "Whether sides are brought within limits, or the image to a height.", Default: limits, Values: []string{limits, "height"}},
			{Key: "max_side", Doc: "For limits: an image with a longer side is shrunk to it; 0 for none.", Default: "0"},
			{Key: "min_side", Doc: "For limits: an image with a shorter side is enlarged to it; 0 for none.", Default: "0"},
			{Key: "multiple", Doc: "For limits: sides are rounded to a multiple of this.", Default: "1"},
			{Key: "round", Doc: "For limits: whether sides are rounded to a multiple always, or only if the image was shrunk or enlarged.", Default: "always", Values: []string{"always", "resized"}},
			{Key: "pad_ratio", Doc: "For limits: an image more than this many times wider than high is padded with black above and below, to twice the height of that ratio; 0 for none.", Default: "0"},
			{Key: "pad_height", Doc: "For limits: an image of at most this height is padded with black above and below, to at least twice this height; 0 for none.", Default: "0"},
			{Key: "height", Doc: "For height: height of the output.", Default: "48"},
			{Key: "min_width", Doc: "For height: smallest width of the output; narrower images are padded with 0 at the right.", Default: "1"},
			{Key: "max_width", Doc: "For height: largest width of the output, to which wider images are squeezed; 0 for none.", Default: "0"},
			{Key: "width_multiple", Doc: "For height: the width of the output is padded to a multiple of this, so that images of similar widths share a batch.", Default: "1"},
			{Key: "widths", Doc: "For height: adds the input WIDTH, the width of the output, which replaces the other parameters of the width.", Default: "false", Values: []string{"true", "false"}},
			{Key: "dtype", Doc: "Type and layout of the output: uint8 [H,W,3] without normalisation, or fp32 [3,H,W].", Default: "fp32", Values: []string{"fp32", "uint8"}},
			{Key: "scale", Doc: "Factor on the 8-bit samples, a number or a fraction.", Default: "1/255"},
			{Key: "mean", Doc: "Subtracted after scaling: one number, or one per channel of the output separated by commas.", Default: "0.5"},
			{Key: "std", Doc: "Divides after the mean is subtracted: one number, or one per channel separated by commas.", Default: "0.5"},
			{
				Key: "rounding", Doc: "Whether the normalised sample is rounded once, after each of the three operations as in PyTorch, or after the scale as well as at the end, as numpy does with a list of means.",
				Default: "each", Values: []string{"once", "each", "scaled"},
			},
			{Key: "geometry", Doc: "Adds the output geometry, which maps points of the source to the output.", Default: "false", Values: []string{"true", "false"}},
		}, image.OpenerParams()),
		Examples: []steps.Example{
			{
				Config:  steps.ExampleConfig("", "fit_image", "fit", "height", "height", "1", "min_width", "4", "scale", "1", "mean", "0", "std", "1"),
				Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 3, 3], "data": [1,2,3, 4,5,6, 7,8,9]}]}`,
			},
			{
				Config:  steps.ExampleConfig("", "fit_image", "min_side", "2", "dtype", "uint8", "color", "bgr", "geometry", "true"),
				Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 2, 3], "data": [0,2,3, 40,52,63]}]}`,
			},
		},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	in := config.Port{Name: imageName, DType: tensor.Uint8, Dims: tensor.Of(-1, -1, 3)}
	if o.files {
		in.DType, in.Dims = tensor.Bytes, tensor.Of(1)
	}
	out := config.Port{Name: outputName, DType: tensor.FP32, Dims: tensor.Of(3, -1, -1)}
	switch {
	case o.bytes:
		out.DType, out.Dims = tensor.Uint8, tensor.Of(-1, -1, 3)
	case o.height > 0:
		out.Dims = tensor.Of(3, int64(o.height), -1)
	}
	sig := &config.Signature{Inputs: []config.Port{in}, Outputs: []config.Port{out}}
	if o.widths {
		sig.Inputs = append(sig.Inputs, config.Port{Name: widthName, DType: tensor.Int32, Dims: tensor.Of(1)})
	}
	if o.geometry {
		sig.Outputs = append(sig.Outputs, config.Port{Name: geometryName, DType: tensor.FP32, Dims: tensor.Of(geometrySize)})
	}
	return sig, nil
}
