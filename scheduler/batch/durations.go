package batch

import (
	"math/bits"
	"time"
)

const (
	// watchSamples is the number of executions from which on their 99.9th percentile is known.
	watchSamples = 1000
	// watchLast is the number of executions after which older ones count half.
	watchLast = 1 << 16
	// watchLeast is the least limit that follows from the percentile.
	watchLeast = time.Second
)

// durations counts the last executions by duration. It is not safe for concurrent use.
type durations struct {
	counts [256]uint64 // see bucket
	total  uint64
}

// add counts an execution.
//
// hot: no allocation.
func (d *durations) add(ns int64) {
	if d.total >= watchLast {
		d.total = 0
		for i := range d.counts {
			d.counts[i] /= 2
			d.total += d.counts[i]
		}
	}
	d.counts[bucket(ns)]++
	d.total++
}

// slowest returns the 99.9th percentile, rounded up to the end of its bucket; 0 while there are too few executions.
func (d *durations) slowest() int64 {
	if d.total < watchSamples {
		return 0
	}
	rest := d.total / 1000 // are slower
	for b := len(d.counts) - 1; b >= 0; b-- {
		if d.counts[b] > rest {
			return upper(b)
		}
		rest -= d.counts[b]
	}
	return 0
}

// bucket returns the bucket of a duration in nanoseconds: four for each power of two.
func bucket(ns int64) int {
	n := uint64(max(ns, 4)) //nolint:gosec // positive
	shift := bits.Len64(n) - 3
	return shift*4 + int(n>>shift)&3 //nolint:gosec // below 256
}

// upper returns the end of a bucket.
func upper(b int) int64 { return int64(b&3+5) << (b >> 2) }
