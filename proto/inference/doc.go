// Package inference holds the messages and the service of the KServe v2
// inference protocol over gRPC, generated from grpc_service.proto. The
// generated files are committed; make generate writes them.
package inference
