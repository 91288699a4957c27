// Package steps is the contract of native steps: pre- and post-processing in Go that runs inside
// the server. A Factory declares a step's parameters and signature and makes the Step; each
// child package implements one family of steps.
//
// A step runs as a model of the backend "native": it has a folder in the model repository,
// versions, statistics and batching like any other model. Its config.pbtxt names it:
//
//	backend: "native"
//	max_batch_size: 8
//	parameters { key: "step" value { string_value: "decode_resize" } }
//	parameters { key: "preset" value { string_value: "resnet50" } }
//
// To add a step, write a Step and a function that returns its Factory, test both with
// steptest.Run, and add the factory to the components of the server (tutti.Components).
package steps
