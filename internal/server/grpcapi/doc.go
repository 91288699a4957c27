// Package grpcapi serves the KServe v2 protocol and Triton's extensions over gRPC.
//
// A method decodes a message, calls an interface of core/infer or a service, and encodes
// the result. It knows no models. A request stays in the transport's buffers until each
// tensor is copied, once, into its own memory. Large tensors of a response are passed to the
// transport without a copy.
//
// Files:
//
//   - server.go: Settings, New, Serve, Shutdown; options.go, restrict.go: grpc's options
//   - about.go, statistics.go, health.go: queries about the server and its models
//   - repository.go, memory.go, settings.go: administration
//   - infer.go: ModelInfer; stream.go, streamcall.go: ModelStreamInfer
//   - codec.go: the codec; wire.go, message.go, contents.go: reading protobuf
//   - connection.go: bytes in flight of incomplete messages
//   - request.go, params.go, region.go, names.go: from message to request
//   - response.go: from response to message; trace.go: when it was sent
package grpcapi
