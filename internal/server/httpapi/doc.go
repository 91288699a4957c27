// Package httpapi serves the KServe v2 protocol and Triton's extensions of it over HTTP.
//
// This package has the server and the table of routes. Its rooms, each of which imports only those before it:
//
//   - jsonwire: JSON as RapidJSON reads and prints it
//   - transport: request bodies from the connection, errors and responses to it
//   - tensorjson: tensor elements in JSON
//   - inference, admin, trtis: the handlers; none imports another
//
// A request passes routes.go, which finds its handler; restrict.go, which checks that it may use it; and the handler. For example,
// POST /v2/models/m/infer is inference.Service.Infer: transport.Body reads and bounds the body, jsonwire parses its JSON,
// tensorjson fills the input tensors, infer.Inferer executes, and the response is encoded into one buffer.
package httpapi
