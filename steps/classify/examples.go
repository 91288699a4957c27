package classify

import "github.com/tutti-server/tutti/steps"

const threeLabels = "cat\ndog\nfox\n"

func topKExamples() []steps.Example {
	return []steps.Example{
		{
			Config: `parameters { key: "step" value { string_value: "top_k" } }
parameters { key: "k" value { string_value: "2" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
			Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [3], "data": [0.5, 2, 1]}]}`,
		},
		{
			Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "top_k" } }
parameters { key: "k" value { string_value: "3" } }
parameters { key: "activation" value { string_value: "sigmoid" } }
parameters { key: "threshold" value { string_value: "0.5" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
			Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 3], "data": [1.5, -2, 3]}]}`,
		},
	}
}

func scoresExamples() []steps.Example {
	return []steps.Example{
		{
			Config: `parameters { key: "step" value { string_value: "scores" } }
parameters { key: "op" value { string_value: "softmax" } }`,
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [3], "data": [0.5, 2, 1]}]}`,
		},
		{
			Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "scores" } }
parameters { key: "op" value { string_value: "arg_max" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
			Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [2, 3], "data": [0.5, 2, 1, 7, 0, 7]}]}`,
		},
	}
}
