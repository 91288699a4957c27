// Package http1 answers plain HTTP/1.1 requests over TCP with a handler, at a fraction of what net/http costs, and leaves
// every connection that asks for anything else to net/http.
//
// A request is plain when its head arrives in one piece, says HTTP/1.1, GET or POST, a path without escapes or a query, and
// a length or none. What is not plain (chunks, Expect, an upgrade, HTTP/2, HTTP/1.0, a header that is not well-formed, a
// head in pieces) goes to net/http with the bytes that were read, and its connection stays there: so whatever is unusual
// is understood, or refused, by net/http alone.
//
// What is saved: request, header and body are used again by the connection; a head that is equal to the one before is not
// parsed; no goroutine looks out for a client that leaves until a request has taken a while; deadlines are set when they
// are needed. What stays as in net/http: limits of head and time, draining what a handler did not read, chunks for answers
// of unknown length, panics, graceful shutdown.
//
//   - server.go: accepting, shutting down
//   - conn.go: one connection, request after request; watch.go: clients that leave
//   - head.go: the request's line and header; fields.go: its header as it came; body.go: its body
//   - answer.go, answerhead.go: the http.ResponseWriter
//
// A handler must not use the request, its header or its body after it has returned.
package http1
