// Package pytorch holds the backends pytorch and torch_aoti: they serve TorchScript models and AOTInductor packages
// through PyTorch's C++ library, opened at run time.
//
//	shim/         libtutti_torch.so: the library behind plain C functions, compiled beside it by Prepare
//	build.go      that compilation
//	call.h call.c calls through the addresses found in it
//	library.go    the opened shim, and its errors; types.go: element types
//	backend.go    the backends and the loading of their models
//	settings.go   parameters of config.pbtxt
//	naming.go     which tensor is which argument or result of forward
//	ports.go      the signature, which the configuration declares: the files carry no shapes
//	package.go    what is in a .pt2 file
//	model.go      a loaded model
//	instance.go   execution; value.go: outputs in PyTorch's memory
//
// Memory: inputs are read where they are, unless forward writes into one (found at load): such a model is given copies.
// Outputs stay where PyTorch put them and travel on as buffers that give the memory back when released; one that is not
// contiguous, or that is an input handed through, is copied.
//
// The numbers of threads, the fuser and the executor are settings of the process in PyTorch: those of the model loaded
// last hold for all. A run cannot be interrupted; cancellation is seen before it starts.
package pytorch
