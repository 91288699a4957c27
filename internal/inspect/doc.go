// Package inspect defines what a running server shows of itself: the interfaces behind the
// dashboard and the commands "tutti why" and "tutti capture", and the views they exchange.
// Every view has a JSON form, which the dashboard's API serves as it is.
//
//   - overview.go: Overview, the server, its models and their plans
//   - trace.go: Inspector, the traces of recent requests
//   - capture.go: Captures, the tensors of chosen requests
//   - explain.go: a trace as text
package inspect
