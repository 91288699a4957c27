// Package load generates load for servers that speak KServe v2 and measures their throughput and latency.
//
// Each request is encoded once, before the measurement starts, for one of four protocols: JSON or the binary
// extension over HTTP, gRPC, and HTTP with the tensors in system shared memory. A client is one connection that
// sends one request at a time. It reads the response into a buffer that it reuses, so the generator takes little of
// a machine that it may share with the server. Two more, Stream and Events, are for models with several responses to a
// request: gRPC streams, for which it uses the general client of gRPC and takes more, and server-sent events over HTTP.
//
// For example, this sends 1,000 requests through 8 clients as fast as the server responds (r is a Request):
//
//	g, err := load.Dial(load.Target{HTTP: "127.0.0.1:8000"}, load.Binary, []load.Request{r}, 8)
//	...
//	result, err := load.Run(g.Clients, load.Plan{Requests: 1000})
//
//	request.go   requests and their encodings
//	client.go    the Client interface, and Dial, which opens a group of clients
//	http.go      clients over HTTP/1.1
//	grpc.go      clients over gRPC
//	stream.go    clients over gRPC streams, for decoupled models
//	events.go    clients over HTTP that read server-sent events, for the same
//	loop.go      many clients on one goroutine, and loopconn.go their connections
//	sequence.go  the parameters of requests in sequences
//	shared.go    the shared-memory region of a group
//	response.go  decoding of responses
//	run.go       closed and open loops
//	result.go    percentiles
package load
