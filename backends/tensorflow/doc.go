// Package tensorflow is the tensorflow backend: it serves SavedModels and graphs (GraphDef) through the C API of TensorFlow, which
// it opens at run time.
//
//	factory.go     the factory and the backend
//	settings.go    parameters of config.pbtxt, and the session's ConfigProto
//	files.go       the files of a model; meta.go: the signatures of a SavedModel, from its MetaGraphDef
//	library.go     the opened library and its errors; types.go: element types
//	session.go     a loaded model
//	signature.go   the configuration against the model
//	model.go       a model and its sessions
//	instance.go    executions; value.go: outputs; retained.go: inputs that the runtime still uses after a run
//	tf.h           the used part of the C API, by function name
//	shim.h, shim.c C functions over it: loading, looking up operations; call.c: one execution
//
// Memory: inputs are read where they are; TensorFlow copies unaligned ones. Outputs stay in memory of the runtime, wrapped as
// tensors. An output that shares its memory (an input that is passed through, a constant, a variable) is copied, and strings are
// copied in both directions. A model that stores an input, for example in a variable or a queue, gets copies of its inputs from the
// first time that is detected.
//
// As in Triton, each instance has its own session with its own weights and variables, unless MAX_SESSION_SHARE_COUNT allows several
// instances to share one. Thread counts apply to the process and are set by the first session, unless TF_USE_PER_SESSION_THREADS
// gives each session its own pools.
//
// The C API cannot stop a run: the server responds to a cancelled request while its batch continues. Refused at load, with their
// names: sparse and ragged tensors, resources and variants, complex, quantised, 4-bit and 8-bit floating point types, devices,
// custom operator libraries, execution accelerators, and Keras files. The runtime logs errors only, to standard error, unless
// TF_CPP_MIN_LOG_LEVEL is set: the level applies to the process. Release 2.21 always writes two lines about oneDNN when it creates
// the first session.
package tensorflow
