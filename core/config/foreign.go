package config

// instead says what serves a model of a backend that Triton has and this server may
// lack.
var instead = map[string]string{
	"tensorrt":    "serve the ONNX file that the plan was made of, with backend 'onnxruntime'",
	"fil":         "convert the trees to ONNX with onnxmltools and set backend 'onnxruntime'",
	"dali":        "make an ensemble of native steps of the pipeline",
	"vllm":        "serve language models by a server of their own",
	"tensorrtllm": "serve language models by a server of their own",
}

// NotBuilt is the error of a model whose backend is not there. It names the backend,
// and what to use in its place where that is known. field is the one that names it.
func NotBuilt(model, backend, field string) error {
	text := ""
	if other := instead[backend]; other != "" {
		text = ": " + other
	}
	return Errorf(NotBuiltIn, field, "unsupported: model '%s' needs backend '%s', which is not built in%s", model, backend, text)
}
