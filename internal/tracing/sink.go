package tracing

// Sink receives finished traces and executed batches. Sinks are given to New.
//
// Both methods are called on the goroutine that ends a request, so they must not block. They
// borrow their argument: a Sink that needs it later must copy it, for example with
// Record.CopyTo. They must be safe for concurrent use.
type Sink interface {
	// Trace takes a finished trace, whose Record it borrows. Those that the trace
	// settings did not choose (Chosen) come only when Options.All is set.
	Trace(t *Trace)
	// Batch takes an executed batch of which a member is traced, before that one ends.
	Batch(b *Batch)
}
