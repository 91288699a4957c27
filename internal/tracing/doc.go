// Package tracing decides which requests are traced, records what they leave behind and
// hands that to sinks. One of them is the trace file, with the settings, the choice and
// the format of Triton's "triton" trace mode.
//
//   - tracer.go: Tracer, its start-up values and the settings in force
//   - update.go: changing settings while the server runs
//   - parse.go: settings as they are on the wire
//   - setting.go: the sampling and collecting of one scope's setting
//   - trace.go: Trace and its Record, what one request leaves behind
//   - point.go, step.go: what a Record is made of
//   - tensor.go: the tensors of a request
//   - report.go: what models report while they execute
//   - w3c.go: the caller's trace
//   - sink.go: Sink, who takes finished traces
//   - quota.go: how many requests are traced for the sinks alone
//   - span.go: what is known of a request before it is known to be traced
//   - encode.go, file.go: the trace file
//   - split.go: what a request's time went into
//
// In the "opentelemetry" mode there is no file: a sink exports what the settings choose.
// Tensors go into files only.
package tracing
