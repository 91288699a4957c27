// Package device limits which instances may execute at the same time: the rate limiter of config.pbtxt, and the
// limits of a device. It also binds executions to cores and memory of the host (Policy).
//
// An Arbiter counts resources. A Demand is the set of resources that one execution of an instance takes: those that
// its rate_limiter names, shared by all devices or counted per device; one of the executions that its device may
// run at a time; its CPU threads. An instance acquires all of them for one execution, or waits. Its tag is the
// number of its executions times its priority. Among the waiting instances, the one whose next execution ends at
// the lowest tag goes first. For example, an instance of priority 1 executes twice as often as one of priority 2
// while both have requests, and starts with its two executions (weighted fair queueing, Demers, Keshav and Shenker
// 1989). Two rules prevent starvation:
//
// - Resources that the first waiting instance lacks are reserved for it: others pass it only with resources that it does not need.
// - An instance that was idle, or is new, joins at the tag that is served now. It does not catch up for the time in which it had no request.
//
// The arbiter has no goroutine and no clock. When nothing is limited, no instance has a Limiter, and executing
// costs nothing more.
package device
