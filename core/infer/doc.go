// Package infer defines requests and responses, and the interfaces through which front ends
// submit them: Inferer, Sink, Catalog and Lifecycle.
//
//   - request.go, params.go: Request, Response and their parameters
//   - service.go: Inferer, Sink, Pacer and Catalog; lifecycle.go: Lifecycle
//   - check.go: what a request must fulfil whichever way it came; forward.go: headers as parameters
//   - access.go: what can be restricted, and who may
//   - classify.go, numbers.go: an output as its best classes
package infer
