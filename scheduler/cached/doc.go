// Package cached puts a response cache in front of a model's scheduler. The lookup comes before the
// queue: a hit never waits for an instance. Identical tasks in flight execute once, by the rules of
// cache.Front; followers count as hits, and as queued while they wait.
//
// A cache in this process is read when a task is enqueued. A cache in another process is read by
// workers, several lookups at a time, so tasks may overtake each other.
//
// Only tensors on the host are hashed and stored: a task with an input at a device, or of a step that
// executes at one, skips the cache. For example, the classifier of an ensemble on GPU 0 skips it,
// while the same classifier, requested directly, has its outputs copied to the host and stored.
package cached
