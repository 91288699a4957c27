// Package scheduler decides which work of which requests a model executes together
// and when. It holds the contract (Work, Completer, Scheduler, Policy) and what
// every scheduler shares: Station, the queue in front of a model's instances, and
// Runner, which gathers a batch, executes it and scatters the outputs. The children
// are the ways to form batches.
//
// # Who runs a batch
//
// Nobody waits for work on a goroutine of their own. Whoever enqueued work lends its
// goroutine for the next batch (a Turn); what is ready beyond that is handed to a
// worker of the shared pool. So an idle model answers without a hop between
// goroutines, and a busy one keeps its instances busy while callers go back to their
// clients. Where batches had several works lately, whoever is about to execute less
// than a full one first lets the goroutines run that are ready to ask.
//
// # What a batch is made of
//
// Rows that agree in shape are joined, padded ones up to the longest. A model with
// ragged inputs, inputs computed over the batch or outputs split as an input was has a
// form, by which every batch is made, one of a single request too. A batch of no rows
// is asked of the model; what it does not take is answered with no rows.
package scheduler
