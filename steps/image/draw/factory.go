// Package draw holds the step draw_boxes, which draws the boxes of a detector on an image.
package draw

import (
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

const (
	inImage = iota
	inBoxes
	inScores
	inClasses
)

const (
	imageName = "IMAGE"
	file      = "file"
	pixels    = "pixels"
	formatPNG = "png"
)

// NewFactory declares the step draw_boxes.
//
// Inputs are IMAGE, an image file (BYTES [1]) or UINT8 [H,W,3]; and, as the step detect
// gives them, boxes FP32 [N,4] (left, top, right and bottom in pixels of the image), scores
// FP32 [N] and classes INT32 [N], where a negative class marks an unused box. Output image is
// a PNG or JPEG file, BYTES [1], or UINT8 [H,W,3]. Boxes with a number that is not finite are
// not drawn, and lines outside the image are cut off. The letters are those of
// golang.org/x/image's basicfont, 7 x 13 pixels times text_scale.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "draw_boxes",
		Doc: "Draws a detector's boxes on an image, each in the colour of its class and with its label and score. The output is " +
			"a file or pixels. A box with a negative class or with a number that is not finite is not drawn.",
		Params: slices.Concat([]steps.Param{
			{Key: "input", Doc: "Whether the image is a file or UINT8 pixels in rows of RGB.", Default: file, Values: []string{file, pixels}},
			{Key: "output", Doc: "The output: a file, or UINT8 pixels, which require an input of pixels.", Default: formatPNG, Values: []string{formatPNG, "jpeg", pixels}},
			{Key: "quality", Doc: "Quality of JPEG, from 1 to 100.", Default: "90"},
			{Key: "thickness", Doc: "Thickness of the lines in pixels; 0 follows the size of the image.", Default: "0"},
			{Key: "text_scale", Doc: "Scale of the letters; 0 follows the size of the image.", Default: "0"},
			{Key: "max_boxes", Doc: "Most boxes of one image.", Default: "1000"},
			{Key: "labels_file", Doc: "Text file with one label per line; without it, classes are shown as numbers.", Sample: "labels.txt"},
		}, image.OpenerParams()),
		Examples:  examples(),
		Signature: signature,
		New:       newStep,
	}
}

// options are the step's parameters.
type options struct {
	files, encoded  bool
	png             bool
	quality         int
	thickness, text int
	maxBoxes        int
	maxPixels       int
}

func parse(s *steps.Settings) (*options, error) {
	p := s.Params
	o := &options{files: p["input"] == file, encoded: p["output"] != pixels, png: p["output"] == formatPNG}
	for _, n := range []struct {
		key          string
		lowest, most int
		to           *int
	}{
		{"quality", 1, 100, &o.quality},
		{"thickness", 0, 1000, &o.thickness},
		{"text_scale", 0, 1000, &o.text},
		{"max_boxes", 1, 1 << 20, &o.maxBoxes},
		{"max_pixels", 1, 1 << 40, &o.maxPixels},
	} {
		v, err := s.Int(n.key, n.lowest)
		if err != nil {
			return nil, err
		}
		if v > n.most {
			return nil, fmt.Errorf("parameter '%s' of model '%s' is %d, expected at most %d", n.key, s.Model, v, n.most)
		}
		*n.to = v
	}
	if o.files && !o.encoded {
		return nil, fmt.Errorf("parameter 'output' of model '%s' is 'pixels', expected png or jpeg with input file, whose images differ in size", s.Model)
	}
	return o, nil
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	pixels := config.Port{Name: imageName, DType: tensor.Uint8, Dims: tensor.Of(-1, -1, 3)}
	named := config.Port{Name: "image", DType: tensor.Bytes, Dims: tensor.Of(1)}
	out := pixels
	if out.Name = named.Name; o.encoded {
		out = named
	}
	if o.files {
		pixels.DType, pixels.Dims = tensor.Bytes, tensor.Of(1)
	}
	return &config.Signature{
		Inputs: []config.Port{
			inImage:   pixels,
			inBoxes:   {Name: "boxes", DType: tensor.FP32, Dims: tensor.Of(-1, 4)},
			inScores:  {Name: "scores", DType: tensor.FP32, Dims: tensor.Of(-1)},
			inClasses: {Name: "classes", DType: tensor.Int32, Dims: tensor.Of(-1)},
		},
		Outputs: []config.Port{out},
	}, nil
}

func examples() []steps.Example {
	return []steps.Example{{
		Config: steps.ExampleConfig("", "draw_boxes", "input", "pixels", "output", "pixels", "thickness", "1"),
		Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [3, 3, 3], "data": [0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0]},
    {"name": "boxes", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 9, 9]},
    {"name": "scores", "datatype": "FP32", "shape": [1], "data": [0.9]},
    {"name": "classes", "datatype": "INT32", "shape": [1], "data": [0]}]}`,
	}}
}
