package image

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	inputName    = "IMAGE"
	boxesName    = "BOXES"
	outputName   = "image"
	geometryName = "geometry"
)

// NewFactory declares the step decode_resize.
//
// Input IMAGE is BYTES [1], one JPEG, PNG, GIF, WebP, BMP or TIFF file. Output image is FP32, FP16 or UINT8,
// [C,H,W] or [H,W,C], with C = 1 for gray and else 3, H and W as configured.
// Resizes are those of Pillow 13 or OpenCV, to the last bit on the same pixels. Normalised samples are
// (x*scale - mean) / std of the 8-bit sample x, computed in float64 and rounded
// once, or in FP32 as PyTorch does (rounding). Output geometry, when asked for, is FP32 [6]: a
// point (x, y) of the source, in pixels from its upper left corner, is at
// (x*g[0] + g[2], y*g[1] + g[3]) of the output; g[4] and g[5] are the source's width
// and height. A file that cannot be decoded fails its own request with an
// invalid-argument error that names the input, what was expected and what found.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "decode_resize",
		Doc: "Decodes one JPEG, PNG, GIF (first frame), WebP, BMP or TIFF file, brings it to a size (stretched, by its shorter side, letterboxed or cut), converts its " +
			"colour, normalises it and lays it out for a model. On the same pixels, resizes have the same bits as Pillow's since version 13, whose order of " +
			"passes differs from 10.4's at a few sizes, and with a filter of OpenCV those of OpenCV 4.14 and 5.0 for x86-64; cv_cubic is OpenCV's own " +
			"code, without Intel's IPP, whose results depend on the processor. Of gray images of 16 bits the high byte counts, where Pillow makes " +
			"all above 255 white. TIFF files may hold gray, palettes, RGB and CMYK of up to 16 bits, with alpha, floating point of 32 bits, and JPEG. " +
			"The output geometry holds scale x, scale y, offset x, offset y, width and height of the source: " +
			"a point (x, y) of the source lies at (x * scale x + offset x, y * scale y + offset y) of the output.",
		Params:    slices.Concat(outputParams(), cropParams(), decodingParams()),
		Presets:   presets,
		Examples:  fileExamples(),
		Signature: signature(files),
		New:       newStep(files),
	}
}

// NewResizeFactory declares the step resize: decode_resize for pictures that are
// decoded already. Input IMAGE is UINT8 [H,W,C] with C = 1 (grey), 3 (RGB) or 4 (RGB
// and alpha, which is dropped).
func NewResizeFactory() steps.Factory {
	return steps.Factory{
		Name: "resize",
		Doc: "Does what decode_resize does after decoding, to a picture of UINT8 samples: rows of pixels of 1 (grey), " +
			"3 (RGB) or 4 samples (RGB and alpha, which is dropped).",
		Params:    slices.Concat(outputParams(), cropParams(), []steps.Param{pixelsParam()}),
		Presets:   presets,
		Examples:  pixelExamples(),
		Signature: signature(pixels),
		New:       newStep(pixels),
	}
}

// NewCropFactory declares the step crop_resize.
//
// Inputs are IMAGE, as in decode_resize or, with input pixels, in resize, and BOXES,
// FP32 [N,4]: left, top, right and bottom in pixels of the picture. Output image is
// [N,C,H,W] or [N,H,W,C]: what each box holds, its pixels whole (edges are rounded
// outwards) and cut off at the picture's edge, resized as by decode_resize. A box
// that is empty, outside the picture or not a number gives pixels of the sample fill.
func NewCropFactory() steps.Factory {
	return steps.Factory{
		Name: "crop_resize",
		Doc: "Cuts boxes, such as a detector's, out of a picture and resizes each for a model. A box is left, top, right and " +
			"bottom in pixels; its edges are rounded outwards and cut off at the picture's. A box that is empty, outside " +
			"the picture or not a number gives a crop of the sample fill.",
		Params: slices.Concat(outputParams(), []steps.Param{
			{Key: "input", Doc: "Whether the picture is an image file or UINT8 pixels.", Default: "file", Values: []string{"file", "pixels"}},
			{Key: "max_boxes", Doc: "Most boxes of one picture.", Default: "256"},
		}, decodingParams()),
		Presets:   presets,
		Examples:  boxExamples(),
		Signature: signature(boxes),
		New:       newStep(boxes),
	}
}

// kind says what a step takes.
type kind uint8

const (
	files kind = iota
	pixels
	boxes
)

// parse reads the parameters of a kind of step.
func (k kind) parse(s *steps.Settings) (*options, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	o.files = k == files || s.Params["input"] == "file"
	if k == boxes {
		if o.boxes, err = s.Int("max_boxes", 1); err != nil {
			return nil, err
		}
	}
	if o.decoding.reduce && (k == boxes || o.crop.w > 0) {
		return nil, wrong(s, "jpeg_scale", "full, since boxes are in pixels of the whole picture")
	}
	return o, nil
}

func signature(k kind) func(*steps.Settings) (*config.Signature, error) {
	return func(s *steps.Settings) (*config.Signature, error) {
		o, err := k.parse(s)
		if err != nil {
			return nil, err
		}
		return o.signature(), nil
	}
}

func (o *options) signature() *config.Signature {
	in := config.Port{Name: inputName, DType: tensor.Bytes, Dims: tensor.Of(1)}
	if !o.files {
		in.DType, in.Dims = tensor.Uint8, tensor.Of(-1, -1, -1)
	}
	sig := &config.Signature{
		Inputs:  []config.Port{in},
		Outputs: []config.Port{{Name: outputName, DType: o.layout.dtype, Dims: o.shape()}},
	}
	if o.boxes > 0 {
		sig.Inputs = append(sig.Inputs, config.Port{Name: boxesName, DType: tensor.FP32, Dims: tensor.Of(-1, 4)})
		sig.Outputs[0].Dims = o.shape().Prepend(-1)
	}
	if o.geometry {
		sig.Outputs = append(sig.Outputs, config.Port{Name: geometryName, DType: tensor.FP32, Dims: tensor.Of(geometrySize)})
	}
	return sig
}
