// Package httpapi answers the KServe v2 protocol and Triton's extensions of it over HTTP.
//
// A handler decodes, calls one of the infer interfaces, and encodes; nothing here
// knows a model. The files, in the order a request passes them:
//
//   - server.go: Settings, New, Serve, Shutdown
//   - routes.go: the table of endpoints; restrict.go: which of them are not for everybody
//   - about.go, statistics.go, config.go: what can be asked about server and models
//   - infer.go: one inference request from socket to socket; exchange.go: its pooled scratch
//   - source.go, chunks.go, inflate.go: from the connection, in time, in few enough pieces, decompressed
//   - body.go, decode.go, raw.go: framing, where the JSON ends and each binary tensor begins
//   - parser.go, string.go: JSON
//   - request.go, params.go, input.go, data.go, output.go: what the JSON says
//   - forward.go: parameters from headers; shared.go: shared memory and classification
//   - encode.go, values.go, text.go: the answer; accept.go, compress.go, patient.go: its way out
//   - generate.go: one generate request, streamed or not; prompt.go, ranged.go: what its
//     JSON says; answers.go: the sink it waits at; answer.go: its answers
//   - control.go, repository.go, tracesetting.go, logging.go, sharedmemory.go: what can
//     be changed about a running server
//   - legacy.go, legacytext.go: the API before v2
//
// A binary tensor is read from the connection into memory of its own and written
// from the memory the model put it in. JSON tensors are parsed into and printed
// from tensor memory; there is no tree in between.
package httpapi
