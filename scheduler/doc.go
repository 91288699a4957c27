// Package scheduler decides which tasks execute together on a model's instances, and when.
//
// This package is the contract: Task and TaskList, Completer, Scheduler, Policy, Limiter, and the
// RunLoop and Workers that execute. Package batch executes one batch: it gathers the inputs,
// calls the instance and scatters the outputs. Package queue holds tasks in front of the
// instances. The other children are the schedulers that a configuration chooses from:
//
//	direct    one request at a time
//	dynamic   dynamic_batching, with padding where the model has pad parameters
//	sequence  sequence_batching, direct and oldest
//	cached    response_cache, in front of one of the others
//	spread    instances at several devices
//	device    the rate limiter that instances of several models share
//
// # Which goroutine executes a batch
//
// No goroutine waits for tasks. The goroutine that enqueued a task executes the next batch of
// its RunLoop; a worker of the shared pool gets what is ready beyond that. So an idle model
// responds without a switch between goroutines, and a busy one keeps its instances busy while
// callers return to their clients. Where batches had several tasks lately, a goroutine that
// would execute less than a full batch first yields to those that are about to send.
package scheduler
