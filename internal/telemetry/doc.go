// Package telemetry holds the counters of models, which are atomic and updated on the request path, and the
// declaration of every metric that is made of them.
package telemetry
