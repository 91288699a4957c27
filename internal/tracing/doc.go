// Package tracing decides which requests are traced, records them and passes the records to sinks. One sink is the
// trace file, with the settings, the sampling and the format of Triton's "triton" trace mode.
//
// - tracer.go: Tracer, its start-up values and the settings in force
// - update.go: changing settings while the server runs
// - parse.go: settings as they are on the wire
// - setting.go: the sampling and collecting of one scope's setting
// - trace.go: Trace and its Record, the data of one request
// - point.go, step.go: the parts of a Record
// - tensor.go: the tensors of a request in the trace file
// - snapshot.go: Recorder and Snapshot, which capture tensors
// - report.go: events that models report while they execute
// - w3c.go: the caller's trace context
// - sink.go: Sink, which receives finished traces
// - quota.go: limits of traces that only sinks receive; failed requests that were not sampled
// - span.go: times measured before a request is sampled
// - encode.go, file.go: the trace file
// - split.go: a request's time by part
//
// In the "opentelemetry" mode there is no file: a sink exports the sampled requests. Tensors are written to trace
// files only.
package tracing
