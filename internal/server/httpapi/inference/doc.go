// Package inference serves the infer and generate endpoints of the HTTP API: it decodes a request into an infer.Request, submits
// it, and encodes the response.
//
//   - service.go: Service and its Settings; exchange.go: the state of one request, pooled
//   - infer.go: an infer request from socket to socket
//   - decode.go: its JSON, and the binary tensors behind it or a raw tensor alone; request.go, parameters.go, input.go, output.go:
//     members of the JSON
//   - shm.go: tensors in shared memory, and classification; headers.go: parameters from headers
//   - encode.go: its response
//   - generate.go: a generate request, streamed or not; generate_request.go, generate_response.go: its JSON; queue.go: the Sink in
//     which its responses wait
//
// A binary tensor is read from the connection into its own memory and written from the memory of the model's output. JSON
// tensors are parsed into tensor memory and printed from there.
package inference
