// Package tracing decides which requests are traced, records them and passes the records to sinks. One sink is the
// trace file, with the settings, the sampling and the format of Triton's "triton" trace mode.
//
// - tracer.go: Tracer, its start-up values and the settings in force
// - settings.go: settings as they are on the wire, and changing them while the server runs
// - sampling.go: the sampling and collecting of a setting; limits of traces that only sinks receive
// - trace.go, record.go: Trace and its Record, the data of one request
// - origin.go: the caller's trace context, and times measured before a request is sampled
// - sink.go: Sink, which receives finished traces, and Recorder, which captures tensors
// - file.go: the trace file
// - split.go: a request's time by part
//
// In the "opentelemetry" mode there is no file: a sink exports the sampled requests. Tensors are written to trace
// files only.
package tracing
