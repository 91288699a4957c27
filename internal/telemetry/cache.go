package telemetry

// CacheCounts are what a response cache has done so far.
type CacheCounts struct {
	// Sized tells that Util, the used share of the configured size, Entries and
	// Evictions are known.
	Sized              bool
	Util               float64
	Entries, Evictions uint64
	// Lookups are answered by Hits.
	Lookups, Hits uint64
	// Dropped are the answers that were not kept, Errors the failures of a server
	// that keeps answers.
	Dropped, Errors    uint64
	LookupNs, InsertNs uint64
}
