// Package device decides which instances may execute at a time: the rate limiter of
// config.pbtxt and the bounds of a device. It also binds executions to parts of the
// host (Policy).
//
// An Arbiter counts resources. What an instance asks for (Ask) is a set of them: those
// that its rate_limiter names, shared by all devices or kept per device; a place in
// what its device runs at a time; its threads out of the CPU's. An instance takes all
// of them for one execution, or waits. Its tag is its executions so far times the
// priority. Of those that wait the one goes first whose next execution ends at the lowest
// tag, so that an instance of priority 1 executes twice as often as one of priority 2
// while both have work, and begins with its two (weighted fair queueing, Demers, Keshav
// and Shenker 1989). Two rules keep anybody from waiting for ever:
//
//   - What the first in line still lacks is kept for it: others pass it only with what
//     it does not need.
//   - Who was idle, or is new, joins at the tag that is served now. It does not make up
//     for the time in which it wanted nothing.
//
// The arbiter has no goroutine and no clock. With nothing to limit nobody has a gate,
// and executing costs what it did.
package device
