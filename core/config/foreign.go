package config

import "strings"

// instead says what serves a model of a backend that Triton has and this server may
// lack.
var instead = map[string]string{
	"tensorrt":    "serve the ONNX file that the plan was made of, with backend 'onnxruntime'",
	"fil":         "convert the trees to ONNX with onnxmltools and set backend 'onnxruntime'",
	"dali":        "make an ensemble of native steps of the pipeline",
	"vllm":        "serve language models by a server of their own",
	"tensorrtllm": "serve language models by a server of their own",
}

// NotBuilt is the error of a model whose backend is not there. It starts with Triton's words, and names the backend and
// what to use in its place where that is known. field is the one that names it; have are the backends that there are.
func NotBuilt(model, backend, field string, have []string) error {
	text := DidYouMean(backend, have)
	if other := instead[backend]; other != "" {
		text = ": " + other
	} else if text != "" {
		text = "." + text
	}
	return WithFix(Errorf(NotBuiltIn, field, "unable to find backend library for backend '%s', try specifying runtime on the model configuration. "+
		"Model '%s' needs backend '%s', which is not built in%s", backend, model, backend, text),
		"use one of the backends that are built in: "+strings.Join(have, ", "))
}
