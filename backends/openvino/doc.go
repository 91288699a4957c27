// Package openvino is the OpenVINO backend: it serves whatever model files that runtime reads (its own IR, ONNX,
// PaddlePaddle, TensorFlow SavedModel folders, frozen graphs and TFLite) through its C interface, opened at run time.
//
//	ov.h          the part of the interface that is used, looked up by name
//	shim.h shim.c plain C functions over it: reading, declarations, compiling
//	call.c        one execution: tensors over the caller's memory, inference, outputs read back, strings
//	library.go    an opened runtime, and its errors
//	core.go       where models are read and compiled, in a thread of its own
//	graph.go      a model file that was read, and what it compiles to; types.go: element types
//	settings.go   parameters of config.pbtxt
//	signature.go  config.pbtxt against the model file; shape.go: the file's shapes changed to fit it
//	model.go      the backend and its models
//	instance.go   execution; cancel.go: its end; value.go: outputs in the runtime's memory; strings.go: BYTES;
//	              pad.go: batches made up to a fixed size
//
// Memory: inputs are read where they are. An output whose shape follows from the batch is written into memory of the
// batch; any other stays where the runtime put it and travels on as a buffer that gives it back when released. Neither way
// copies, but for strings and padded batches. The instances of a model share its weights; each has a request of its own.
//
// An execution that is no longer wanted stops between two nodes of the graph.
package openvino
