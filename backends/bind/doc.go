// Package bind has what the backends of frameworks share (onnx, openvino, tensorflow, pytorch). Above all it binds the inputs and
// outputs of a configuration to those of a model file: names, types, dimensions and the batch dimension. Ports that the
// configuration leaves out are taken from the file (Triton's auto-complete). Contradictions are errors with Triton's texts.
//
// For example, a file with input x of shape [-1,3] and a configuration with max_batch_size 8 and dims [ 3 ] agree: the first
// dimension is the batch. With dims [ 4 ] the model is refused.
//
//	bind.go       the ports of a file and of a signature, and Bind
//	match.go      one declared port against the file's
//	complete.go   ports and max_batch_size that the configuration leaves out
//	wholebatch.go tensors over a whole batch: ragged and computed inputs, scattered outputs
//	reshape.go    shapes that depend on other shapes
//	options.go    settings of --backend-config; params.go: parameters of config.pbtxt
//	file.go       model files; types.go: element types of a runtime
//	execute.go    checks and errors of executions
//	buffers.go    memory of the runtime as tensors, without a copy
package bind
