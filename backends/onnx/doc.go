// Package onnx is the onnxruntime backend: it serves ONNX models through ONNX Runtime's C interface, opened at run time.
//
//	ort.h         the part of the interface that is used, by position in the function table
//	shim.h shim.c plain C functions over the table: opening, declarations
//	options.c     how a session is made
//	call.c        one execution: tensors made over the caller's memory, run, outputs read back
//	strings.c     string tensors; bound.c: executions through a binding, for devices
//	library.go    an opened runtime, and its errors; start.go: the settings it is started with
//	session.go    a loaded model file; options.go: what the runtime is told about it; types.go: element types
//	settings.go   parameters of config.pbtxt; accelerators.go: execution providers
//	signature.go  config.pbtxt against the model file, and shapes of outputs that follow from the inputs'
//	model.go      the backend and its models; device.go: those with instances on GPUs
//	instance.go   execution; value.go: outputs in the runtime's memory; watch.go: stopping what nobody waits for
//
// Memory: inputs are read where they are. An output whose shape follows from the inputs' is written into memory of the
// batch; any other stays where the runtime put it and travels on as a buffer that gives it back when released. Neither way
// copies; strings are copied, both ways, because the runtime keeps each in a place of its own. One session serves all
// instances of a model at one place, so weights are held once.
//
// On the host tensors are passed with each run. A binding kept with the instance, as device memory needs, costs half a
// microsecond more there, because every tensor is new in each run.
//
// Instances of KIND_GPU use the CUDA provider of a library that has it. Sequences, maps, sparse and complex tensors are
// refused by name at load.
package onnx
