// Package pipeline is the DAG: plan compiles an ensemble's configuration into slots
// and nodes, exec runs the result.
//
// # The way of a request
//
//	socket -> httpapi | grpcapi: decode, each tensor into its own buffer
//	       -> infer.Inferer.Submit
//	       -> repository: a handle on the model version
//	       -> exec: inputs into slots; every node whose needs are met is enqueued
//	       -> scheduler: works of all requests for a node become a batch
//	       -> backends.Instance.Execute
//	       -> scheduler.Completer: outputs into slots; next nodes
//	       -> infer.Sink.Send -> encode -> socket
//
// # Words
//
//   - model: a repository folder; a native step and an ensemble are models too.
//   - version: one numbered folder of a model, loaded or not.
//   - instance: one executor of a loaded version; used by one goroutine at a time.
//   - step: what config.pbtxt lists in ensemble_scheduling; or a Go-native model.
//   - plan: an ensemble compiled once; node: one step of a plan.
//   - slot: the place of one ensemble tensor in a run.
//   - run: one request under way through a plan.
//   - part: a piece of a plan between decoupled steps; wave: the run of one, for one
//     answer of the decoupled step before it.
//   - work: one request for one node; batch: works executed together.
//   - row: one element of the batch dimension.
//   - place: where memory lives.
package pipeline
