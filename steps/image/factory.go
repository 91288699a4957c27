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
// Input IMAGE is BYTES [1]: a JPEG, PNG, GIF, WebP, BMP or TIFF file. Output image is FP32, FP16 or UINT8, [C,H,W] or
// [H,W,C], where C is 1 for gray and 3 otherwise, H and W as configured. Resizes have the bits of Pillow 13 or OpenCV
// on the same pixels. A normalised sample is (x*scale - mean) / std of the 8-bit sample x, computed in float64 and
// rounded once, or in FP32 as PyTorch does (parameter rounding).
//
// The optional output geometry g is FP32 [6]: a point (x, y) of the source, in pixels from the upper left corner, is at
// (x*g[0] + g[2], y*g[1] + g[3]) of the output; g[4] and g[5] are the width and height of the source.
//
// A file that cannot be decoded fails its own request with an invalid-argument error that
// names the input, the expected formats and what was found.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "decode_resize",
		Doc: "Decodes one JPEG, PNG, GIF (first frame), WebP, BMP or TIFF file, resizes it (stretched, by its shorter side, letterboxed or cropped), converts its " +
			"colour space, normalises it and writes it in the layout of a model. On the same pixels, resizes have the same bits as Pillow 13, whose order of " +
			"passes differs from that of 10.4 at a few sizes. With a filter of OpenCV they have the bits of OpenCV 4.14 and 5.0 for x86-64; cv_cubic is OpenCV's own " +
			"code without Intel's IPP, whose results depend on the processor. 16-bit gray images are reduced to their high byte, where Pillow makes " +
			"every sample above 255 white. TIFF files may hold gray, palettes, RGB and CMYK of up to 16 bits, with alpha, floating point of 32 bits, and JPEG. " +
			"The output geometry holds scale x, scale y, offset x, offset y, width and height of the source: " +
			"a point (x, y) of the source lies at (x * scale x + offset x, y * scale y + offset y) of the output.",
		Params:  slices.Concat(outputParams(), cropParams(), decodingParams()),
		Presets: presets,
		Examples: []steps.Example{{ // a letterbox; the file is a BMP with the oldest header, whose bytes can be written in JSON
			Config: steps.ExampleConfig("max_batch_size: 8", "decode_resize", "width", "4", "height", "2", "fit", "letterbox", "fill", "114", "scale", "1", "geometry", "true"),
			Request: `{"inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": ["BM\"\u0000\u0000\u0000\u0000\u0000\u0000\u0000` +
				`\u001a\u0000\u0000\u0000\f\u0000\u0000\u0000\u0002\u0000\u0001\u0000\u0001\u0000\u0018\u0000\u0000\u0000x<<<\u0000\u0000"]}]}`,
		}},
		Signature: signature(files),
		New:       newStep(files),
	}
}

// NewResizeFactory declares the step resize: decode_resize for images that are already decoded. Input IMAGE is UINT8
// [H,W,C] with C = 1 (grey), 3 (RGB) or 4 (RGB and alpha, which is dropped).
func NewResizeFactory() steps.Factory {
	return steps.Factory{
		Name: "resize",
		Doc: "Resizes and normalises a decoded image as decode_resize does. The image has UINT8 samples: rows of pixels of 1 (grey), " +
			"3 (RGB) or 4 samples (RGB and alpha, which is dropped).",
		Params: slices.Concat(outputParams(), cropParams(), []steps.Param{
			{Key: "max_pixels", Doc: "Largest image accepted, width times height.", Default: "67108864"},
		}),
		Presets: presets,
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("", "resize", "width", "3", "height", "1", "resize", "bicubic", "color", "gray", "mean", "0.5", "std", "0.5"),
			Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]}]}`,
		}},
		Signature: signature(pixels),
		New:       newStep(pixels),
	}
}

// NewCropFactory declares the step crop_resize.
//
// Inputs are IMAGE, as in decode_resize or, with input pixels, in resize, and BOXES, FP32 [N,4]: left, top, right and
// bottom in pixels of the image. Output image is [N,C,H,W] or [N,H,W,C]: the content of each box, resized as by
// decode_resize. The edges of a box are rounded outwards to whole pixels and cut off at the edges of the image. A box
// that is empty, outside the image or NaN gives pixels of the sample fill.
func NewCropFactory() steps.Factory {
	return steps.Factory{
		Name: "crop_resize",
		Doc: "Crops boxes, for example a detector's, from an image and resizes each crop for a model. A box is left, top, right and " +
			"bottom in pixels; its edges are rounded outwards and cut off at the edges of the image. A box that is empty, outside " +
			"the image or NaN gives a crop of the sample fill.",
		Params: slices.Concat(outputParams(), []steps.Param{
			{Key: "input", Doc: "Whether the image is a file or UINT8 pixels.", Default: "file", Values: []string{"file", "pixels"}},
			{Key: "max_boxes", Doc: "Most boxes of one image.", Default: "256"},
		}, decodingParams()),
		Presets: presets,
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "crop_resize", "input", "pixels", "width", "1", "height", "1", "resize", "area", "dtype", "uint8"),
			Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]},
    {"name": "BOXES", "datatype": "FP32", "shape": [2, 4], "data": [0,0,2,1, 2.5,-3,9,0.7]}]}`,
		}},
		Signature: signature(boxes),
		New:       newStep(boxes),
	}
}

// kind is one of the three steps.
type kind uint8

const (
	files kind = iota
	pixels
	boxes
)

// parse reads the parameters.
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
	if o.decoding.Reduce && (k == boxes || o.crop.W > 0) {
		return nil, s.Wrong("jpeg_scale", "full, since boxes are in pixels of the whole image")
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
