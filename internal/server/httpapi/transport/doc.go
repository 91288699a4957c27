// Package transport receives request bodies and sends responses for the rooms of the HTTP API.
//
// Requests, in the order in which their bytes pass:
//
//   - stall.go: reads from the connection, and gives up when the client sends nothing
//   - chunks.go: counts the chunks of a chunked body; inflate.go: decompresses
//   - body.go: Body, which bounds and charges what is read; document.go: bodies that are one JSON document
//   - reject.go: responses before the body is read, and what happens to the rest of it
//
// Responses: respond.go has errors and JSON, coding.go the compression that the client accepts, writer.go writes to
// clients that read slowly.
package transport
