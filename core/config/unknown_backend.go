package config

import "strings"

// alternatives says what can serve a model of a Triton backend that this server may lack.
var alternatives = map[string]string{
	"tensorrt":    "serve the ONNX file that the plan was made of, with backend 'onnxruntime'",
	"fil":         "convert the trees to ONNX with onnxmltools and set backend 'onnxruntime'",
	"dali":        "make an ensemble of native steps of the pipeline",
	"vllm":        "serve language models by a server of their own",
	"tensorrtllm": "serve language models by a server of their own",
}

// UnknownBackend is the error of a model with an unknown backend. It starts with Triton's text and names an
// alternative if there is one. field is the field that names the backend; have lists the known ones.
func UnknownBackend(model, backend, field string, have []string) error {
	text := DidYouMean(backend, have)
	if other := alternatives[backend]; other != "" {
		text = ": " + other
	} else if text != "" {
		text = "." + text
	}
	return WithFix(Errorf(NotBuiltIn, field, "unable to find backend library for backend '%s', try specifying runtime on the model configuration. "+
		"Model '%s' needs backend '%s', which is not built in%s", backend, model, backend, text),
		"use one of the backends that are built in: "+strings.Join(have, ", "))
}
