// Package tracing decides which requests are traced and writes what was seen of them
// to the trace file, with the settings, the choice and the file of Triton's "triton"
// trace mode.
//
//   - tracer.go: Tracer, its start-up values and the settings in force
//   - update.go: changing settings while the server runs
//   - parse.go: settings as they are on the wire
//   - setting.go: the sampling and collecting of one scope's setting
//   - trace.go: Trace, what one request leaves behind
//   - span.go: what is timed before it is known to be traced
//   - file.go: the trace file
//
// Traced are timestamps. Tensors and the "opentelemetry" mode are not built: asking
// for them is an error of code Unsupported.
package tracing
