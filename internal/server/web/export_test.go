package web

import "github.com/tutti-server/tutti/internal/inspect"

// ModelUpdates returns a function that makes the next event about models of a stream and returns its size.
func ModelUpdates(o inspect.Overview) func() int {
	var m modelFeed
	var turn uint64
	var buf []byte
	return func() int {
		m.at = m.at.Add(-updateInterval)
		_, buf, turn = m.since(turn, o, buf[:0])
		return len(buf)
	}
}
