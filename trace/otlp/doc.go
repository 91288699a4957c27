// Package otlp exports traces over the OpenTelemetry protocol, with the span names and
// attributes of Triton's "opentelemetry" trace mode. The spans are those of the
// OpenTelemetry SDK, which also puts them into portions and sends them.
//
//   - settings.go: Settings, read from what follows "opentelemetry," in --trace-config
//   - exporter.go: Exporter, a tracing.Sink with a queue and one goroutine behind it
//   - client.go: how spans leave, over HTTP or gRPC
//   - spans.go: a request as spans
//   - batch.go: an executed batch as a span
//   - ids.go: span ids that are known beforehand
//
// A request is these spans:
//
//	InferRequest          the whole request, below the client's span if it named one
//	  <model>             from its submission to its end
//	    <model>           a step of an ensemble; its events are copies, cache hits, refusals
//	      queue           in the model's queue
//	      batch           the end of that: held back for others to join
//	      compute         what an instance did, linked to the batch
//	        input         bringing the inputs together
//	        infer         the model
//	        output        handing the outputs on
//
// A plain model's request is its own step. A batch is a trace of its own, with one
// span of that name that links to the requests it was executed for.
package otlp
