// Package pipeline is the DAG. Package plan compiles an ensemble's configuration into slots and nodes; package exec
// executes the result. docs/architecture.md follows a request and a start through the functions of all packages.
//
// # Glossary
//
//   - model: a folder of the repository; Go steps and ensembles are models too.
//   - version: one numbered folder of a model.
//   - instance: one copy of a loaded version that executes batches, used by one goroutine at a time unless the model is
//     concurrent.
//   - step: an entry of ensemble_scheduling in config.pbtxt.
//   - plan: an ensemble, compiled once; node: one step of a plan.
//   - slot: the number of an ensemble tensor in a plan.
//   - run: one request on its way through a plan.
//   - stream: what depends on the responses of a decoupled step, or on the tensors that a window or a join makes of
//     streams; segment: the steps of one stream; sub-run: the run of a segment for one response.
//   - task: one request at one node; batch: tasks that execute together.
//   - row: one element of the batch dimension.
//   - place: where memory lives, for example host or device:0.
package pipeline
