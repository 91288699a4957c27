// Package redis keeps answers in a Redis server, which several servers may share and
// which outlives them.
//
// A server that is slow or dead costs little: a lookup that takes longer than the
// socket time-out is a miss, and from the first failure on until the server answers a
// probe again nobody asks it. Answers are sent by a goroutine of its own; those that
// it cannot keep up with are not kept.
package redis
