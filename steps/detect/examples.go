package detect

import "github.com/tutti-server/tutti/steps"

func examples() []steps.Example {
	return []steps.Example{
		{
			Config: `parameters { key: "step" value { string_value: "detect" } }
parameters { key: "max_detections" value { string_value: "3" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
			Files: map[string][]byte{"labels.txt": []byte("cat\ndog\n")},
			Request: `{"inputs": [
    {"name": "boxes", "datatype": "FP32", "shape": [3, 4], "data": [0,0,10,10, 1,0,11,10, 20,5,30,25]},
    {"name": "scores", "datatype": "FP32", "shape": [3, 2], "data": [0.9,0.1, 0.8,0, 0.2,0.6]}]}`,
		},
		{
			Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "detect" } }
parameters { key: "format" value { string_value: "yolov8" } }
parameters { key: "geometry" value { string_value: "true" } }
parameters { key: "output" value { string_value: "rows" } }`,
			Request: `{"inputs": [
    {"name": "predictions", "datatype": "FP32", "shape": [1, 6, 2], "data": [32,16, 24,40, 20,12, 16,8, 0.7,0.1, 0,0.2]},
    {"name": "geometry", "datatype": "FP32", "shape": [1, 6], "data": [0.5,0.5, 0,8, 128,96]}]}`,
		},
	}
}
