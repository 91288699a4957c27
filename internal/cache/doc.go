// Package cache is the contract of the response cache: what names an answer (Key,
// made by a Hasher), what keeps answers (Cache), and how identical requests that are
// in flight at one time run once (Flights). The children keep answers: local in this
// process's memory, redis in a server that several processes share.
//
// Two places ask: scheduler/cached in front of a model's queue, and pipeline/exec in
// front of a whole ensemble.
package cache
