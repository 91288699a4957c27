// Package onnx is the onnxruntime backend: it serves ONNX models through the C API of ONNX Runtime, which it opens at run time.
//
//	factory.go        the factory and the backend; environment.go: settings of the process
//	settings.go       parameters of config.pbtxt; accelerators.go: execution providers; sessionoptions.go: both in C
//	library.go        the opened library and its errors
//	session.go        a loaded model file; types.go: element types
//	signature.go      the configuration against the file; output shapes that are known before a run
//	model.go          a model; device.go: models with instances at GPUs
//	instance.go       executions; value.go: outputs in memory of the runtime; cancel.go: cancelled executions
//	ort.h             the used part of the C API, by position in the function table
//	shim.h, shim.c    C functions over the table: the environment, declarations
//	options.c         creating a session; call.c: one execution
//	strings.c         string tensors; bound.c: executions through an OrtIoBinding, for devices
//
// Memory: the runtime reads inputs where they are. An output whose shape is known from the inputs is written to memory of the
// batch; any other output stays in memory of the runtime, wrapped as a tensor. Neither is copied. Strings are copied in both
// directions, because the runtime allocates each one separately. All instances of a model at one place share a session, so the
// weights exist once.
//
// On the host, tensors are passed with each run. An OrtIoBinding, which device memory needs, would cost half a microsecond more
// there, because every tensor is new in each run.
//
// Instances of KIND_GPU use the CUDA provider if the library has it. Sequences, maps, sparse and complex tensors are refused at
// load, with their names.
package onnx
