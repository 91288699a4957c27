// Package monitor shows the models of a running server live in a terminal: rates, latencies, queues, batches and errors.
//
// A Source takes samples of a server. Rows are the differences of two samples, one row for each version of a model. A View
// lays rows out for a terminal of any size, and Run draws it and handles the keys.
//
//	sample.go   Source and Sample
//	rows.go     rows and their order
//	view.go     the layout
//	screen.go   the terminal
package monitor
