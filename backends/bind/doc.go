// Package bind ties the inputs and outputs that a configuration declares to those of a
// model file: their names, types, dimensions and batch dimension. What the configuration
// leaves out is taken from the file; what it says otherwise than the file is refused in
// Triton's words. Backends of runtimes whose files describe themselves share it.
//
//	bind.go     the ports of a file and of a signature; binding them
//	match.go    one declared port against the file's
//	complete.go what the configuration leaves to the file
//	whole.go    tensors over a whole batch: ragged and computed inputs, scattered outputs
//	reshape.go  shapes that follow other shapes
//	setting.go  default-max-batch-size
//	lend.go     memory of the runtime handed on without a copy
package bind
