// Package cached puts a response cache in front of a model's scheduler. The lookup
// comes before the queue: a hit never waits for an instance.
//
// Identical works that are in flight at one time run once: the first one leads, the
// others follow and get references to its outputs; they count as hits, and as waiting
// while they wait. A leader that fails keeps its failure for itself: when its client
// has gone the next follower leads, after any other failure each follower is computed
// by itself. Works of another priority or time-out do not follow, and a follower whose
// client has gone is given up while it waits.
//
// What a work asks for is known before it is queued, so a cache in this process is
// asked where the work is brought; one in another process is asked by whoever lends
// its goroutine, and several lookups are under way at a time, so that works may overtake
// each other there.
//
// At devices only what the host can read is hashed and kept: neither a work with an
// input at a device nor a step that runs at one asks the cache, whose answer would have
// to go up again. The outputs of a model that is asked by itself come to the host
// anyway, and are kept once they are there.
package cached
