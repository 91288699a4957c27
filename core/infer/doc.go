// Package infer defines requests and responses, and the interfaces through which front ends submit them: Inferer,
// Sink, Catalog and Lifecycle.
//
// - request.go, params.go: Request, Response and their parameters
// - service.go: Inferer, Sink, Pacer and Catalog; lifecycle.go: Lifecycle
// - call.go: Call, the Sink of a request with one response
// - inflight.go: InFlight, the limit of bytes in flight
// - check.go: the validation that all front ends share; forward.go: headers as parameters
// - access.go: restrictions of categories of endpoints
// - classify.go, numbers.go: an output as its best classes
package infer
