package tracing

// Sink takes what requests leave behind. Sinks are given to New and called by whoever
// ends a request: they neither wait nor keep what they are shown. Safe for concurrent
// use.
type Sink interface {
	// Trace takes a finished trace, whose Record it borrows. Those that the trace
	// settings did not choose (Chosen) come only when Options.All is set.
	Trace(t *Trace)
	// Batch takes an executed batch of which a member is traced, before that one ends.
	Batch(b *Batch)
}
