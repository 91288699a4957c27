package image

import "github.com/tutti-server/tutti/steps"

// fileExamples are those of decode_resize: a letterbox with its geometry. The file is a BMP with
// the oldest header, whose bytes can be written in JSON.
func fileExamples() []steps.Example {
	return []steps.Example{{
		Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "decode_resize" } }
parameters { key: "width" value { string_value: "4" } }
parameters { key: "height" value { string_value: "2" } }
parameters { key: "fit" value { string_value: "letterbox" } }
parameters { key: "fill" value { string_value: "114" } }
parameters { key: "scale" value { string_value: "1" } }
parameters { key: "geometry" value { string_value: "true" } }`,
		Request: `{"inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": ["BM\"\u0000\u0000\u0000\u0000\u0000\u0000\u0000` +
			`\u001a\u0000\u0000\u0000\f\u0000\u0000\u0000\u0002\u0000\u0001\u0000\u0001\u0000\u0018\u0000\u0000\u0000x<<<\u0000\u0000"]}]}`,
	}}
}

// pixelExamples are those of resize.
func pixelExamples() []steps.Example {
	return []steps.Example{{
		Config: `parameters { key: "step" value { string_value: "resize" } }
parameters { key: "width" value { string_value: "3" } }
parameters { key: "height" value { string_value: "1" } }
parameters { key: "resize" value { string_value: "bicubic" } }
parameters { key: "color" value { string_value: "gray" } }
parameters { key: "mean" value { string_value: "0.5" } }
parameters { key: "std" value { string_value: "0.5" } }`,
		Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]}]}`,
	}}
}

// boxExamples are those of crop_resize.
func boxExamples() []steps.Example {
	return []steps.Example{{
		Config: `parameters { key: "step" value { string_value: "crop_resize" } }
parameters { key: "input" value { string_value: "pixels" } }
parameters { key: "width" value { string_value: "1" } }
parameters { key: "height" value { string_value: "1" } }
parameters { key: "resize" value { string_value: "area" } }
parameters { key: "dtype" value { string_value: "uint8" } }`,
		Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [255,0,0, 0,255,0, 0,0,255, 255,255,255]},
    {"name": "BOXES", "datatype": "FP32", "shape": [2, 4], "data": [0,0,2,1, 2.5,-3,9,0.7]}]}`,
	}}
}
