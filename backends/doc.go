// Package backends is the contract between the scheduler and whatever executes a
// model: a Factory opens a Backend, a Backend loads Models, a Model makes
// Instances, and an Instance executes Batches. Each child package implements it
// for one runtime; none of them knows of queues, other models or the wire.
package backends
