// Package sequence schedules models with sequence_batching. The requests of one sequence share a correlation id,
// from START to END. They execute in order, one at a time, on one instance and in one slot of it. For example, with
// two slots the sequences 7 and 8 execute in the rows 0 and 1 of each batch, and sequence 9 waits in the backlog
// until one of them ends.
//
// # Structure
//
// A batcher decides which sequence has which slot, which sequences wait in the backlog, and which requests form the
// next batch. It receives the time as an argument and has no lock, timer or goroutine, so that scripts test it on a
// virtual clock. Scheduler adds a lock, a timer and instances, and fills batches with control inputs (ports),
// states and placeholder rows.
//
// A request has neither control inputs nor states. It carries the inputs of the model's public signature. Each slot
// has a task with all ports of the model.
//
// # Strategies
//
// Direct: the slot is the row. A batch has the rows of all slots up to the last occupied one; a slot without a
// request gets a row of zeros with READY false. Oldest: the requests of the slots are batched as in dynamic
// batching, in the order in which they became ready.
//
// # Devices
//
// A sequence and its states stay where its instance is: a state that a batch wrote at a device is the input of the
// next batch there. Control inputs, ids, initial states and placeholder rows are allocated on the host. The first
// task that needs one at a device copies it there, for all later tasks.
//
// # End of a sequence
//
// A sequence ends with its END request; after max_sequence_idle_microseconds without a request; when a request is
// cancelled before it executes, because the model would miss it; and in the backlog also with a request's timeout.
// A request that fails in the model does not end its sequence: the state stays as it was before the request.
package sequence
