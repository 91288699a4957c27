// Package openvino is the OpenVINO backend: it serves the model files that OpenVINO reads (its own IR, ONNX, PaddlePaddle, TFLite,
// TensorFlow SavedModels and frozen graphs) through the C API, which it opens at run time.
//
//	factory.go     the factory and the backend
//	settings.go    parameters of config.pbtxt
//	library.go     the opened library and its errors; core.go: the ov_core, in its own thread
//	graph.go       a model file and the compiled model; types.go: element types
//	signature.go   the configuration against the file; adapt.go: changing the shapes of the file
//	model.go       a model
//	instance.go    executions; value.go: outputs in memory of the runtime; strings.go: BYTES; padding.go: fixed batch sizes;
//	               cancel.go: cancelled executions
//	ov.h           the used part of the C API, by function name
//	shim.h, shim.c C functions over it: reading, declarations, compiling; call.c: one execution
//
// Memory: the runtime reads inputs where they are. An output whose shape is known from the batch is written to memory of the batch;
// any other output stays in memory of the runtime, wrapped as a tensor. Neither is copied, apart from strings and padded batches.
// The instances of a model share its weights; each has its own infer request.
//
// An execution whose requests are all cancelled stops between two nodes of the graph.
package openvino
