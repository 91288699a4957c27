// Package otlp exports traces over the OpenTelemetry protocol, as the spans, events and
// attributes of Triton's "opentelemetry" trace mode. The spans are those of the
// OpenTelemetry SDK, which also puts them into portions and sends them.
//
//   - settings.go: Settings, read from what follows "opentelemetry," in --trace-config
//   - exporter.go: Exporter, a tracing.Sink with a queue and one goroutine behind it, and its client
//   - spans.go: a request, an executed batch and the reports of models as spans
//
// A request is these spans:
//
//	InferRequest          the whole request, below the client's span if it named one
//	  <model>             from its submission to its end
//	    <model>           a step of an ensemble
//	      <name>          what the model reports as NAME_START and NAME_END
//	      compute         what an instance did
//
// A plain model's request is its own step. The request of a model that calls another one
// has no InferRequest: the called model's span is below the calling one's.
//
// Settings.Detail adds InferRequest to such calls, attributes, events for copies, cache
// hits and refusals, and these spans:
//
//	queue                 in the model's queue
//	batch                 the end of that: held back for others to join
//	compute               linked to the batch
//	  input               bringing the inputs together
//	  infer               the model
//	  output              handing the outputs on
//
// A batch is then a trace of its own, with one span of that name that links to the requests it was executed for.
package otlp
