// Package benchmark measures servers that speak KServe v2: throughput, latency, errors, and where the server spends the
// time. It drives the clients of package load.
//
// A Session sends requests in a closed loop (a number of clients, each with one request under way) or in an open loop
// (requests arrive at a rate, whatever the server does). In an open loop latency counts from the intended arrival, so that a
// server that stalls cannot hide the requests that would have come meanwhile (no coordinated omission). Measure warms up and
// measures windows until they agree. Compare measures two servers in interleaved rounds. A Report is the result of both.
//
//	s, err := benchmark.Open(target, load.Binary, requests, benchmark.Load{Clients: 8})
//	...
//	defer s.Close()
//	result, err := s.Measure(ctx, &benchmark.Plan{Warmup: time.Second, Window: time.Second})
//
//	inputs.go     requests with random tensors
//	files.go      requests from files
//	session.go    the clients and their loops
//	arrivals.go   when requests of an open loop arrive
//	dispatch.go   the open loop of high rates, whose clients share a goroutine
//	record.go     latencies and errors
//	measure.go    warm-up and windows
//	compare.go    rounds, ratios and their confidence intervals
//	steps.go      the times of a server's steps, from its statistics
//	report.go     the report in HTML, and svg.go its plots
package benchmark
