// Package redis stores responses in a Redis server, which several servers may share and which outlives them.
//
// A slow or dead Redis server costs little: a lookup that exceeds the socket timeout is a miss, and after the first
// failure no request is looked up until the server responds to a probe. For example, with socket_timeout=100 the
// requests in flight wait at most 100 ms for a dead server; later ones do not wait. A separate goroutine sends
// responses to the server; responses that it cannot keep up with are dropped.
package redis
