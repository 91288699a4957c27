// Package ring is a store of recent traces in memory of a fixed size: four rings of whole
// traces, of which the oldest make room for new ones. What is kept is decided when a
// request has ended: all that failed, the slow ones, those whose clients asked for it, and
// one in so many of the rest.
//
//   - store.go: Store, a tracing.Sink that decides and keeps
//   - ring.go: one ring
//   - learn.go: how long the requests of a model take
//   - batches.go: the executed batches
//   - search.go: looking traces up; Store is an inspect.Inspector
package ring
