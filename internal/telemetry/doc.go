// Package telemetry holds what is counted about models: handles with atomic
// counters, written on the request path, and the one declaration of every metric
// made of them.
package telemetry
