// Package ring stores recent traces in memory of a fixed size: four rings of whole traces, in which new traces
// replace the oldest. When a request has ended, its trace is retained if it failed, was slow, or was requested by
// its client; one in so many of the others is sampled.
//
// - store.go: Store, a tracing.Sink that selects and retains traces
// - ring.go: one ring, and the executed batches
// - codec.go: a record as bytes
// - learn.go: the durations of a model's requests
// - search.go: queries; Store is an inspect.Inspector
package ring
