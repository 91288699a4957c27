// Package encode holds the step encode_image, which encodes image tensors as files.
package encode

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	inputName  = "image"
	outputName = "file"
)

// NewFactory declares the step encode_image.
//
// Input image is UINT8 or FP32, [H,W,C] or [C,H,W], where C is 1 for gray, 3 for rgb and 4 for
// rgba. FP32 samples are multiplied by scale, rounded to the nearest integer and clamped to 0
// to 255. Output file is BYTES [1]: a JPEG with 4:2:0 chroma, a PNG or a lossless WebP. A
// sample that is not finite fails its own request with an invalid-argument error; an empty
// image or one beyond the limits fails the batch.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "encode_image",
		Doc:  "Encodes an image tensor of any size as a JPEG, PNG or WebP file. WebP is always lossless.",
		Params: []steps.Param{
			{Key: "format", Doc: "Format of the file.", Default: "jpeg", Values: []string{"jpeg", "png", "webp"}},
			{Key: "quality", Doc: "Quality of JPEG, from 1 to 100.", Default: "75"},
			{Key: "color", Doc: "Colour space of the channels; JPEG does not support rgba.", Default: "rgb", Values: []string{"rgb", "gray", "rgba"}},
			{Key: "layout", Doc: "Order of the input's dimensions.", Default: "nhwc", Values: []string{"nchw", "nhwc"}},
			{Key: "dtype", Doc: "Type of the input.", Default: "uint8", Values: []string{"uint8", "fp32"}},
			{Key: "scale", Doc: "Factor on FP32 samples, which are then rounded and clamped to 0 to 255.", Default: "255"},
			{Key: "max_pixels", Doc: "Largest image accepted, width times height.", Default: "67108864"},
		},
		Examples: []steps.Example{{
			Config:  "parameters { key: \"step\" value { string_value: \"encode_image\" } }\nparameters { key: \"format\" value { string_value: \"png\" } }\nparameters { key: \"color\" value { string_value: \"gray\" } }",
			Request: `{"inputs":[{"name":"image","datatype":"UINT8","shape":[1,2,1],"data":[0,255]}],"outputs":[{"name":"file","parameters":{"binary_data":true}}]}`,
		}},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	dims := tensor.Of(-1, -1, int64(o.channels))
	if o.planes {
		dims = tensor.Of(int64(o.channels), -1, -1)
	}
	dtype := tensor.Uint8
	if o.float {
		dtype = tensor.FP32
	}
	return &config.Signature{
		Inputs:  []config.Port{{Name: inputName, DType: dtype, Dims: dims}},
		Outputs: []config.Port{{Name: outputName, DType: tensor.Bytes, Dims: tensor.Of(1)}},
	}, nil
}
