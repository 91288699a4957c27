// Package tensorflow is the tensorflow backend: it serves SavedModels and graphs (GraphDef) through TensorFlow's C
// interface, opened at run time.
//
//	tf.h          the part of the interface that is used: functions looked up by name
//	shim.h shim.c plain C functions over them: loading, looking up results of operations
//	call.c        one execution: tensors made over the caller's memory, run, outputs read back
//	library.go    an opened runtime, and its errors
//	meta.go       the signatures of a SavedModel, out of its MetaGraphDef
//	session.go    a loaded model; files.go: where its files are; types.go: element types
//	settings.go   parameters of config.pbtxt, and the session's ConfigProto
//	signature.go  config.pbtxt against the model
//	model.go      the backend and its models
//	instance.go   execution; value.go: outputs; loan.go: inputs that the runtime goes on referring to
//
// Memory: inputs are read where they are; TensorFlow copies what is not aligned for it. Outputs stay where the runtime
// put them and travel on as buffers that give them back when released. An output whose memory something else refers to
// as well (an input handed through, a constant, a variable) is copied, and so are strings, both ways. A model that keeps
// an input in a variable or a queue has its inputs copied once that has shown.
//
// As in Triton each instance has a session of its own, which holds weights and variables of its own, unless
// MAX_SESSION_SHARE_COUNT lets so many instances share one. Numbers of threads are those of the process, set by the first
// session, unless TF_USE_PER_SESSION_THREADS gives each session its own.
//
// The C interface cannot stop a run: a request that is cancelled is answered by the scheduler while its batch runs on.
// Sparse and ragged tensors, resources and variants, complex, quantised and 4 and 8 bit floating point types, devices,
// custom operator libraries, execution accelerators and Keras files are refused by name at load. The runtime logs errors
// only, to standard error, unless TF_CPP_MIN_LOG_LEVEL says otherwise: it has one level in a process. Release 2.21 also
// writes two lines about oneDNN when it makes its first session, whatever the level.
package tensorflow
