package image

import "github.com/tutti-server/tutti/steps"

// fileExamples are those of decode_resize: a letterbox with its geometry. The file is a BMP with
// the oldest header, whose bytes can be written in JSON.
func fileExamples() []steps.Example {
	return []steps.Example{{
		Config: steps.ExampleConfig("max_batch_size: 8", "decode_resize", "width", "4", "height", "2", "fit", "letterbox", "fill", "114", "scale", "1", "geometry", "true"),
		Request: `{"inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": ["BM\"\u0000\u0000\u0000\u0000\u0000\u0000\u0000` +
			`\u001a\u0000\u0000\u0000\f\u0000\u0000\u0000\u0002\u0000\u0001\u0000\u0001\u0000\u0018\u0000\u0000\u0000x<<<\u0000\u0000"]}]}`,
	}}
}

// pixelExamples are those of resize.
func pixelExamples() []steps.Example {
	return []steps.Example{{
		Config:  steps.ExampleConfig("", "resize", "width", "3", "height", "1", "resize", "bicubic", "color", "gray", "mean", "0.5", "std", "0.5"),
		Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]}]}`,
	}}
}

// boxExamples are those of crop_resize.
func boxExamples() []steps.Example {
	return []steps.Example{{
		Config: steps.ExampleConfig("", "crop_resize", "input", "pixels", "width", "1", "height", "1", "resize", "area", "dtype", "uint8"),
		Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]},
    {"name": "BOXES", "datatype": "FP32", "shape": [2, 4], "data": [0,0,2,1, 2.5,-3,9,0.7]}]}`,
	}}
}
