// Package inspect defines the views of a running server: the interfaces behind the dashboard and the commands "tutti
// why" and "tutti capture", and their data. Every view has a JSON form, which the dashboard's API serves unchanged.
//
// - overview.go: Overview, the server, its models and their plans
// - trace.go: Inspector, the traces of recent requests
// - record.go: views of trace records, also as text
// - capture.go: Captures, the tensors of selected requests
package inspect
