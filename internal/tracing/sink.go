package tracing

// Sink receives finished traces and executed batches. Sinks are given to New.
//
// Both methods are called on the goroutine that ends a request, so they must not block. They
// borrow their argument: a Sink that needs it later must copy it, for example with
// Record.CopyTo. They must be safe for concurrent use.
type Sink interface {
	// Trace takes a finished trace, whose Record it borrows. Traces that the trace settings did not sample
	// (Trace.Sampled) are sent only when Options.All is set.
	Trace(t *Trace)
	// Batch takes an executed batch that has a traced member, before that member ends.
	Batch(b *Batch)
}
