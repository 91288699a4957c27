// Package grpcapi answers the KServe v2 protocol and Triton's extensions of it over gRPC.
//
// A method decodes, calls one of the infer interfaces, and encodes; nothing here
// knows a model. The files:
//
//   - server.go: Settings, New, Serve, Shutdown
//   - about.go, statistics.go: what can be asked about server and models
//   - infer.go: ModelInfer; inputs.go, params.go: its request; answer.go: its response
//   - unsupported.go: the methods that are not built
package grpcapi
