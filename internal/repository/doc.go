// Package repository loads and serves the models of one or more model repositories. It finds models in folders and
// buckets, loads their versions, compiles ensembles, and passes each request to the executor of the version that it
// names. It implements infer.Inferer, infer.Catalog and infer.Lifecycle.
//
// # Snapshots
//
// Requests read a snapshot: an immutable table of every known model. Reading takes no lock. Load, Unload, Poll and the
// start of the server are changes. A change opens models and compiles ensembles beside the snapshot that serves, and
// then publishes a new snapshot in one step, or none. For example, a Load of an ensemble whose second model is broken
// leaves the old ensemble serving. Changes run one after the other.
//
// A version that is not in the new snapshot retires: it accepts no more requests, and is
// closed when its last request has its response and no ensemble uses it.
//
// # What survives a reload
//
// A version that replaces one with the same number continues its counters, so metrics and
// statistics are not reset. Unloading resets them.
//
// A version of which only the instance groups changed stays loaded: new instances are made
// before the snapshot is published and surplus instances are removed afterwards. If its
// scheduler cannot be resized, a new version takes over the open model.
//
// # Before a version serves
//
// The checksum agent verifies the model's files. Every instance executes the warm-up requests of the configuration, and
// the first one the golden requests of the model's folder. A root in a bucket is compared by its listing; the objects
// of a model are downloaded when the model is opened.
//
// # Files
//
//   - source.go and namespace.go find models in folders; bucket.go and fetch.go in buckets; lifecycle.go is Load,
//     Unload and the overrides of a load request; overridedir.go has its files; poll.go is Poll, with the fingerprints of folders.
//   - load.go opens a version, or compiles that of an ensemble; instances.go and schedule.go make its instances and its
//     scheduler; update.go changes the instances of a version or of an open model.
//   - dryrun.go and golden.go are the checks before a version serves.
//   - snapshot.go is the table that serves and the nesting of changes, change.go the change, retire.go what follows it, catalog.go what
//     front ends ask.
package repository
