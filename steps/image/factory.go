package image

import (
	"tutti/core/config"
	"tutti/core/tensor"
	"tutti/steps"
)

const (
	inputName  = "IMAGE"
	outputName = "image"
)

// NewFactory declares the step decode_resize.
//
// Input IMAGE is BYTES [1], one JPEG, PNG, GIF, WebP, BMP or TIFF file. Output image is FP32 or UINT8,
// [C,H,W] or [H,W,C], with C = 3 for rgb and 1 for gray, H and W as configured.
// The resize is exact: the aspect ratio of the picture is not kept. FP32 samples
// are (x*scale - mean) / std of the 8-bit sample x, computed in float64 and
// rounded once. A file that cannot be decoded fails its own request with an
// invalid-argument error that names the input, what was expected and what found.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "decode_resize",
		Doc: "Decodes one JPEG, PNG, GIF (first frame), WebP, BMP or TIFF file, converts it to RGB or grey, resizes it with Pillow's antialiased " +
			"bilinear filter (same bits as Pillow on the same pixels), normalises it and lays it out for a model.",
		Params:    params(),
		Signature: signature,
		New:       newStep,
	}
}

func params() []steps.Param {
	return append([]steps.Param{
		{Key: "width", Doc: "Width of the output in pixels.", Required: true},
		{Key: "height", Doc: "Height of the output in pixels.", Required: true},
		{Key: "color", Doc: "Colour of the output.", Default: "rgb", Values: []string{"rgb", "gray"}},
		{Key: "layout", Doc: "Order of the output's dimensions.", Default: "nchw", Values: []string{"nchw", "nhwc"}},
		{Key: "dtype", Doc: "Type of the output; uint8 gives samples as they are.", Default: "fp32", Values: []string{"fp32", "uint8"}},
		{Key: "scale", Doc: "Factor on the 8-bit samples, a number or a fraction.", Default: "1/255"},
		{Key: "mean", Doc: "Subtracted after scaling: one number, or one per channel separated by commas.", Default: "0"},
		{Key: "std", Doc: "Divides after the mean is subtracted: one number, or one per channel separated by commas.", Default: "1"},
		{Key: "resize", Doc: "Filter of the resize.", Default: "bilinear", Values: []string{"bilinear"}},
	}, decodingParams()...)
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	return &config.Signature{
		Inputs:  []config.Port{{Name: inputName, DType: tensor.Bytes, Dims: tensor.Of(1)}},
		Outputs: []config.Port{{Name: outputName, DType: o.dtype(), Dims: o.shape()}},
	}, nil
}
