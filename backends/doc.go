// Package backends is the contract between the scheduler and the runtimes that execute models. It corresponds to Triton's
// backend API: a Factory opens a Backend, a Backend loads Models, a Model creates Instances, and an Instance executes
// Batches. Each child package implements the contract for one runtime. A backend does not know about queues, other models
// or network protocols.
//
// # Lifecycle
//
//  1. Factory.New opens the backend when the first model that needs it is loaded.
//  2. Backend.Load opens one version of one model. Several goroutines may call it at once.
//  3. Model.Signature describes the inputs and outputs; the server checks it once, against the configuration.
//  4. Model.NewInstance is called once for each instance of the configuration's instance_group.
//  5. Instance.Execute runs batches, for as long as the model is loaded.
//  6. Instance.Close, then Model.Close, then Backend.Close. Each closes after all that it created has been closed.
//
// A failed phase returns an error and leaves nothing open: for example, when NewInstance fails, the server closes the
// instances that exist and then the model.
//
// # Memory
//
// An input is borrowed: it is valid until Execute returns, and other requests may share it, so an instance must not write to
// it. An output moves to the batch. It may be memory of Batch.Alloc, memory of the runtime wrapped as a tensor, or an input
// that is passed through by Retain.
package backends
