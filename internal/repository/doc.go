// Package repository serves the models of one or more folders: it finds them, loads
// their versions, compiles ensembles and hands requests to the executor of the
// wanted version. It implements infer.Inferer, infer.Catalog and infer.Lifecycle.
//
// What serves is a snapshot that never changes: a request reads it without a lock. A
// change (Load, Unload, Poll and the start) is a transaction: it opens models and
// compiles ensembles beside what serves, and publishes another snapshot in one step,
// or none. Changes are made one after the other. A version that is no longer in the
// snapshot retires: it takes no more requests, and is closed when those under way
// are answered and no ensemble hands work to it.
//
// A version that replaces one of its own number goes on with its counters, so that
// metrics and statistics do not start anew on every reload; they do after an unload.
//
// A version of which nothing but the instance groups changed stays: an update makes the
// instances that it lacks before the snapshot is published, and removes the others after.
// Where its scheduler cannot be resized another version takes over the open model.
//
// Before a version is published its instances answer the warm-up and golden requests
// of its folder, and the checksum agent has looked at its files. A root in a bucket is
// mirrored: its listing is what is compared, and a model's objects are brought to disk
// when it is opened.
//
// Files: source.go and fingerprint.go find models, namespace.go tells those of one name apart, override.go takes them from a
// request, mirror.go, fetch.go and progress.go bring them from buckets and
// prune.go forgets them, load.go opens a version of a plain model and ensemble.go compiles one of
// an ensemble, instances.go and schedule.go make its instances and their queue, update.go changes
// those of a version that stays, regroup.go makes a version of a model that is open, rehearse.go, warm.go, golden.go, goldendata.go, goldencompare.go and
// agent.go are what a version goes through before it serves, life.go is the states of a version, snapshot.go what serves, change.go
// the transaction, repository.go opens and closes, lifecycle.go and poll.go change
// what serves, submit.go and catalog.go answer the front ends.
package repository
