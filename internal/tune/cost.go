package tune

import (
	"math"
	"slices"
	"time"
)

// Observation is one measured size of a batch: the lower quartiles of several executions. Other processes make
// executions slower, never faster.
type Observation struct {
	Batch Batch
	Wall  time.Duration
	CPU   time.Duration // processor time of all threads
}

// Batch is the size of an execution: its rows, and elements or rows times the longest length where rows are padded.
type Batch struct {
	Rows, Length int32
	Elements     int64
}

// add adds a request to the batch.
func (b *Batch) add(s *Size) {
	b.Rows += s.Rows
	b.Length = max(b.Length, s.Length)
	b.Elements += s.Elements
}

// features are the variables of a Cost: a constant, rows, elements, and elements times length for models whose work
// per element grows with the length, such as attention.
func (b *Batch) features() [features]float64 {
	elements := float64(b.Elements)
	if b.Length > 0 {
		elements = float64(b.Rows) * float64(b.Length)
	}
	return [features]float64{1, float64(b.Rows), elements, elements * float64(b.Length)}
}

const features = 4

// Cost is the latency model of one model with one number of threads: the wall time of a batch on an idle machine is a
// sum of features with coefficients that are not negative.
type Cost struct {
	coefficients [features]float64 // ns
	// Width is how many cores an execution uses on average.
	Width float64
	// Interference is how much longer executions take, beyond the sharing of cores, when other executions use all other
	// cores: caches and memory are shared, too. It is known for short and for long executions.
	Interference [2]Interference
	// Error is the mean relative difference between the observations and the fit.
	Error float64
	// Beyond is that of the batches that are larger than the current max_batch_size; BeyondBatches is their number.
	Beyond        float64
	BeyondBatches int
}

// Interference is how much longer an execution takes beside others. For example, 0.1 is a tenth.
type Interference struct{ Wall, Part float64 }

// interference returns the interference of an execution with a wall time in ns: between the two known ones in proportion.
func (c *Cost) interference(wall float64) float64 {
	short, long := c.Interference[0], c.Interference[1]
	if long.Wall <= short.Wall {
		return short.Part
	}
	at := min(max((wall-short.Wall)/(long.Wall-short.Wall), 0), 1)
	return short.Part + at*(long.Part-short.Part)
}

// Wall returns the time of a batch on an idle machine, in ns.
func (c *Cost) Wall(b *Batch) float64 {
	sum := 0.0
	for i, x := range b.features() {
		sum += c.coefficients[i] * x
	}
	return sum
}

// Fit finds the coefficients with the smallest squared relative error (non-negative least squares by coordinate
// descent), and the mean width. It needs at least one observation.
func Fit(list []Observation) Cost {
	var c Cost
	var a [features][features]float64
	var v [features]float64
	wall, cpu := 0.0, 0.0
	for i := range list {
		o := &list[i]
		t := max(float64(o.Wall), 1)
		wall, cpu = wall+1, cpu+float64(o.CPU)/t
		f := o.Batch.features()
		for j := range f {
			v[j] += f[j] / t
			for k := range f {
				a[j][k] += f[j] * f[k] / (t * t)
			}
		}
	}
	for range descents {
		for j := range c.coefficients {
			if a[j][j] == 0 {
				continue
			}
			rest := v[j]
			for k := range c.coefficients {
				if k != j {
					rest -= a[j][k] * c.coefficients[k]
				}
			}
			c.coefficients[j] = max(0, rest/a[j][j])
		}
	}
	c.Width = max(cpu/max(wall, 1), leastWidth)
	for i := range list {
		c.Error += math.Abs(c.Wall(&list[i].Batch)/max(float64(list[i].Wall), 1)-1) / float64(len(list))
	}
	return c
}

const (
	descents   = 20000 // converges slowly where features are nearly proportional, and takes about a millisecond
	leastWidth = 0.05  // of an execution that mostly waits, such as a call of another server
)

// median returns the middle of the values, 0 without any. It sorts them.
func median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// quartile returns the value that a quarter of the values is below, 0 without any. It sorts them.
func quartile[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/4]
}
