package telemetry

// CacheCounts are the counters of a response cache.
type CacheCounts struct {
	// Sized reports whether Util, the used share of the configured size, Entries and Evictions are known.
	Sized              bool
	Util               float64
	Entries, Evictions uint64
	// Hits counts the lookups that found a response.
	Lookups, Hits uint64
	// Dropped counts the responses that were not stored, Errors the failures of a remote cache.
	Dropped, Errors    uint64
	LookupNs, InsertNs uint64
}
