// Package grpcapi answers the KServe v2 protocol and Triton's extensions of it over gRPC.
//
// A method decodes, calls one of the infer interfaces or a service of core, and
// encodes; nothing here knows a model. Requests stay in the transport's buffers until
// each tensor's bytes are copied, once, into memory of the tensor's own; large tensors
// of answers are handed to the transport as they are. The files:
//
//   - server.go: Settings, New, Serve, Shutdown; options.go, restrict.go: what
//     the settings mean to grpc
//   - about.go, statistics.go, health.go: what can be asked about server and models
//   - repository.go, memory.go, settings.go: what can be changed
//   - infer.go: ModelInfer; stream.go, streamcall.go: ModelStreamInfer
//   - codec.go: how both meet grpc; wire.go, message.go, contents.go: reading protobuf
//   - line.go: what is in flight of messages that are not complete
//   - request.go, params.go, region.go, names.go: a message becomes a request
//   - reply.go: an answer becomes a message; trace.go: when it is sent
package grpcapi
