// Package simulate predicts what part of the requests to an ensemble is answered within a limit, by simulation: it is the command tutti
// simulate.
//
//	learn.go     the graph of an ensemble, with the times of a server's statistics
//	file.go      the graph in a file
//	arrivals.go  arrivals: generated, or recorded
//	run.go       the simulations
//	report.go    the report as a table, for programs, and as a plot
package simulate
