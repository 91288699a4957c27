// Package sequence schedules models with sequence_batching: the requests of one
// sequence (those that share a correlation id, from START to END) run in their order,
// one at a time, on one instance, in one slot of it.
//
// # How it is put together
//
// A book decides: which sequence has which slot, who waits in the backlog, which
// requests form the next batch. It is told the time and holds no lock, no timer and no
// goroutine, so that scripts test it on a virtual clock. Scheduler gives it a lock, a
// timer and instances, and fills batches: control inputs (ports), states, and rows that
// stand for nobody.
//
// A request sees neither control inputs nor states. It carries the inputs of the
// model's public signature; each slot has a work of its own with all ports.
//
// # Strategies
//
// Direct: the slot is the row. A batch has the rows of all slots up to the last one that
// is taken; a slot without a request gets a row of zeros with READY false. Oldest: the
// requests of the slots are batched as dynamic batching does, in the order in which they
// became ready.
//
// # Devices
//
// A sequence stays at its instance's place, and so do its states: a state that a batch
// put out at a device is there for the next one. Controls, ids, initial states and rows
// for nobody are made on the host; the first work that needs one at a device has it
// copied there, for all.
//
// # What ends a sequence
//
// Its END request; max_sequence_idle_microseconds without a request; a request that is
// cancelled before it is executed, for the model would miss it; in the backlog also a
// request's timeout. A request that fails in the model does not: the state stays what it
// was before it.
package sequence
