package deadline

import "math"

// Latency learns how long a batch takes, by its size: the number of its elements, or of its rows. The zero value knows nothing. It is not
// safe for concurrent use.
//
// The estimate is fixed + perUnit*size, by least squares over the last 32 to 64 batches. Each batch also moves the whole estimate a part of
// the way to what it took: when a model becomes ten times slower, for example because another process uses its processors, the estimate is
// right again after about 20 batches, while how it depends on the size is kept. As long as all batches have had one size, every size is
// estimated alike.
//
// What lies further back is forgotten and not only weighted down: large batches of a bad time would have large batches seem slow for as
// long as only small ones are formed because of that.
type Latency struct {
	now, before    sums    // of the batches of this period, and of the last one
	fixed, perUnit float64 // ns
	deviation      float64 // mean difference of a batch's time from the estimate, as a part of it
	recent, perRow float64 // mean rows of the last batches, and size of their rows
	batches        int
}

// sums are those of a period's batches.
type sums struct{ n, size, time, size2, mix float64 }

// add adds a batch.
func (s *sums) add(size, took float64) {
	s.n++
	s.size += size
	s.time += took
	s.size2 += size * size
	s.mix += size * took
}

// scale has all times be those times a factor.
func (s *sums) scale(by float64) {
	s.time *= by
	s.mix *= by
}

const (
	// period is how many batches are remembered, and at most as many before them.
	period = 32
	// quick is the part of the way that the last batch moves the estimate, and its weight in the recent size.
	quick = 0.15
	// fast is that part if the batch took less than half of the estimate: other load makes batches slower, never faster.
	fast = 0.5
	// fewest is how many batches are observed before there is an estimate.
	fewest = 8
	// spread is how much sizes must vary, as a part of the mean of their squares, before the cost of an element is estimated.
	spread = 1e-3
	// mostApart bounds what a single batch says about how the time depends on the size, in estimates.
	mostApart = 1.5
	// mostSlower bounds what a single batch says about those to come, in estimates: a process that was stopped says nothing.
	mostSlower = 20
)

// Observe adds a batch of so many rows and of a size that has taken ns.
func (l *Latency) Observe(rows, size float64, ns int64) {
	took := float64(max(ns, 1))
	if l.Known() {
		took = l.follow(size, took)
		l.recent += quick * (rows - l.recent)
		l.perRow += quick * (size/max(rows, 1) - l.perRow)
	}
	if l.batches++; l.batches <= fewest {
		l.recent, l.perRow = rows, size/max(rows, 1)
	}
	if l.now.n == period {
		l.before, l.now = l.now, sums{}
	}
	l.now.add(size, took)
	l.fit()
}

// follow moves the estimate towards the time of a batch, and returns what that says about how the time depends on the size.
func (l *Latency) follow(size, took float64) float64 {
	expected := max(l.estimate(size), 1)
	ratio, weight := min(took/expected, mostSlower), quick
	if ratio < 0.5 {
		weight = fast
	}
	l.deviation += quick * (min(math.Abs(ratio-1), 1) - l.deviation)
	scale := 1 + weight*(ratio-1)
	l.now.scale(scale)
	l.before.scale(scale)
	expected *= scale
	return min(max(took, expected/mostApart), expected*mostApart)
}

// fit sets the line.
func (l *Latency) fit() {
	a, b := &l.now, &l.before
	n := a.n + b.n
	size, time, size2, mix := (a.size+b.size)/n, (a.time+b.time)/n, (a.size2+b.size2)/n, (a.mix+b.mix)/n
	l.fixed, l.perUnit = time, 0
	if variance := size2 - size*size; variance > spread*size2 {
		slope := min(max((mix-size*time)/variance, 0), time/size) // neither part is negative
		l.fixed, l.perUnit = time-slope*size, slope
	}
}

// Known reports whether there is an estimate.
func (l *Latency) Known() bool { return l.batches >= fewest }

// Of returns the time of a batch of a size in ns, 0 while it is not known.
//
// hot: asked for each batch.
func (l *Latency) Of(size float64) int64 {
	if !l.Known() {
		return 0
	}
	return int64(min(l.estimate(size), longest))
}

// longest bounds estimates, in ns: a sum of many does not overflow.
const longest = 1e15

// estimate is the time of a batch in ns.
func (l *Latency) estimate(size float64) float64 { return l.fixed + l.perUnit*size }

// Rows returns the time of a batch of so many rows of the usual size, in ns.
func (l *Latency) Rows(n float64) int64 { return l.Of(n * l.perRow) }

// Queue returns the time of what is queued, in ns: rows of a size together, in batches of at most so many rows.
func (l *Latency) Queue(rows, size float64, most int) int64 {
	if !l.Known() || rows <= 0 {
		return 0
	}
	batches := math.Ceil(rows / float64(max(most, 1)))
	return int64(min(batches*l.fixed+l.perUnit*size, longest))
}

// Share returns what rows of a size take of a batch like the last ones, in ns; 0 while it is not known.
func (l *Latency) Share(rows, size float64) int64 {
	if !l.Known() {
		return 0
	}
	return int64(min(l.fixed*rows/max(l.recent, rows, 1)+l.perUnit*size, longest))
}

// Recent returns the mean rows of the last batches.
func (l *Latency) Recent() float64 { return l.recent }

// Deviation returns how far the times of batches are from their estimates on average: 0.1 is 10 %.
func (l *Latency) Deviation() float64 { return l.deviation }
