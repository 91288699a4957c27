// Package pytorch has the backends pytorch and torch_aoti: they serve TorchScript models and AOTInductor packages through the C++
// library of PyTorch, which is opened at run time.
//
//	factory.go     the factories and the backend
//	settings.go    parameters of config.pbtxt
//	ports.go       the signature, which the configuration must declare: the files have no shapes
//	matching.go    which tensor is which argument or result of forward
//	package.go     the content of a .pt2 file
//	library.go     the opened shim and its errors; types.go: element types
//	model.go       a model
//	instance.go    executions; value.go: outputs in memory of PyTorch
//	shim/          libtutti_torch.so, C functions over the C++ library; build.go: Prepare compiles it beside that library
//	call.h, call.c calls of the shim's functions by address
//
// Memory: inputs are read where they are. A model whose forward writes to an input, which is detected at load, gets copies. Outputs
// stay in memory of PyTorch, wrapped as tensors; an output that is not contiguous, or an input that is passed through, is copied.
//
// Thread counts, the fuser and the executor are settings of the process: those of the model that was loaded last apply to all. A run
// cannot be interrupted; cancellation is checked before it starts.
package pytorch
