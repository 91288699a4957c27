// Package load generates load for servers that speak KServe v2 and says how they bore it.
//
// A request is encoded once, before anything is measured, for one of four protocols: JSON and the binary extension over
// HTTP, gRPC, and HTTP with the tensors in system shared memory. A client is one connection that sends one request at a
// time and reads what is answered into a buffer that it keeps, so that the generator takes little of a machine that it
// may share with the server.
//
//	request.go   requests and how they are written
//	client.go    what a client is, and Dial, which makes a group of them
//	http.go      clients over HTTP/1.1
//	grpc.go      clients over gRPC
//	shared.go    the region of the clients whose tensors are in shared memory
//	answer.go    reading an answer
//	run.go       the closed loop and the open one
//	result.go    percentiles
package load
