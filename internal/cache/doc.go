// Package cache is the contract of the response cache: Key identifies a response and is made by a Hasher, Cache
// stores responses, and Flights executes identical requests in flight once. Front combines them. Two packages
// implement Cache: local in this process's memory, and redis in a server that several processes share.
//
// Front has two users: scheduler/cached in front of a model's queue, and pipeline/exec in front of an ensemble.
package cache
