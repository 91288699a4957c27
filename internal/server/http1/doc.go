// Package http1 serves plain HTTP/1.1 requests over TCP with an http.Handler, at a fraction of the cost of net/http. It hands
// every connection that needs anything else to net/http.
//
// A request is plain when its head arrives in one read and has HTTP/1.1, the method GET or POST, a path without escapes and
// without a query, and a Content-Length or no body. The first request that is not plain (chunked, Expect, an upgrade, HTTP/2,
// HTTP/1.0, a malformed header, a head in several pieces) moves its connection, with the bytes read so far, to net/http, where
// it stays. So net/http alone interprets or rejects unusual bytes. For example, "Content-Length: +5" is never parsed here.
//
// The savings: the connection reuses its request, header map and body; a head equal to the previous one is not parsed again;
// no goroutine watches for a disconnect until a request has run for 20 ms; deadlines are set only when they change. Everything
// else is as in net/http: limits of header size and time, draining of unread bodies, chunked responses of unknown length,
// panics, graceful shutdown. Tests compare both servers on the same bytes.
//
// Files, in the order in which a request passes them:
//
//   - server.go: accept loop, shutdown; handoff.go: the listener through which net/http receives connections
//   - conn.go: one connection, request after request; watch.go: client disconnects
//   - head.go: request line and header; body.go: request body
//   - response.go, responsehead.go: the http.ResponseWriter
//
// # Contract of handlers
//
// A handler is called as by net/http, one request at a time per connection, with these additional rules:
//
//  1. It must not modify the request's Header, neither the map nor its values: the next request with an equal head gets the
//     same map. For example, r.Header.Del("Authorization") would remove the field from every later request of the client.
//     A handler that needs another header must use r.Header.Clone().
//  2. It must not use the request, its header, its body or the ResponseWriter after it has returned.
//  3. It may call Fields until it returns.
package http1
