// Package infer defines requests and responses, and the interfaces through which front ends submit them: Inferer,
// Sink, Catalog and Lifecycle (service.go). It also holds what all front ends share: the validation of requests
// (check.go), Call for requests with one response, the limit of bytes in flight (InFlight), restrictions of endpoints
// (access.go) and the best classes of an output (Classify).
package infer
