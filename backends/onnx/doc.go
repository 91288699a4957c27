// Package onnx is the onnxruntime backend: it serves ONNX models through ONNX Runtime's C interface, opened at run time.
//
//	ort.h         the part of the interface that is used, by position in the function table
//	shim.h shim.c plain C functions over the table: opening, loading, declarations
//	call.c        one execution: tensors made over the caller's memory, run, outputs read back
//	library.go    an opened runtime, and its errors
//	session.go    a loaded model file; types.go: element types
//	settings.go   parameters of config.pbtxt
//	signature.go  config.pbtxt against the model file, and shapes of outputs that follow from the inputs'
//	model.go      the backend and its models
//	instance.go   execution; value.go: outputs in the runtime's memory
//
// Memory: inputs are read where they are. An output whose shape follows from the inputs' is written into memory of the
// batch; any other stays where the runtime put it and travels on as a buffer that gives it back when released. Neither way
// copies. One session serves all instances of a model, so weights are held once.
//
// String tensors, sequences, maps, devices, custom operators and execution accelerators are refused by name at load.
package onnx
