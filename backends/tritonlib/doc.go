// Package tritonlib serves models whose backend is a library made for Triton: libtriton_NAME.so, built against NVIDIA's tritonbackend.h. The
// library is loaded in a process of its own, which provides the calls of Triton's backend API.
//
//	guide.go     the documentation; backends.FindLibrary finds the libraries of models
//	check.go     what a library needs: calls that are not provided are an error of the load
//	model.go     the backend, and a loaded model with its instances, whose process is started again when it ends
//	process.go   a child process: its start, its end, its memory
//	notices.go   what a process reports besides responses: log lines and metrics
//	instance.go  executions: the batch in shared memory, and the events that follow
//	response.go  responses, states and other events
//	slot.go      places in shared memory for a batch in flight, and the wait for events
//	wire.go      the layout of shared memory
//	child.go     the child's side in Go: it loads the library, and makes and closes instances
//	symbols.go   a shared library that the child makes at run time, which gives Triton's names to the functions here
//	*.c, host.h  the child's side in C: the calls, and the threads that execute
//	api.h        the calls as libraries see them
//
// # Processes
//
// A version of a model has one process, with the library, the model and all its instances, since instances may share memory of the model, as
// in Triton. It is this program, started in a mode that is no command (see Hidden and Serve). The kernel kills it when the server exits, and
// it exits when its socket is closed. Each instance has a thread, which calls TRITONBACKEND_ModelInstanceExecute.
//
// # Symbols
//
// Libraries need libtritonserver.so for the calls. The child writes a library of that name into memory, whose symbols have the addresses of
// its own functions, and loads it first. So the program exports no symbols, and no compiler is needed where it runs.
//
// # Executions
//
// The memory is that of isolated models (see backends/isolate): inputs are read where the server has them, outputs are written into the range
// of the process and become tensors there. A batch in flight has a slot: the server writes its requests there and adds one to the counter of the
// instance, on which the thread waits by futex. The library's calls put events into a list of the slot: a response, a request that was released,
// the return of Execute. An execution ends when Execute has returned and each request is released and has its final response. A decoupled model's
// instance takes the next batch once Execute has returned.
//
// # Crashes
//
// When the process ends, the requests that it had fail as unavailable, to be sent again. It is started again with its instances, at once and
// then with a growing delay. What it was given, and what it wrote, is not trusted: positions and sizes are checked.
package tritonlib
