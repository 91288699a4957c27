package deadline

import (
	"math"
	"slices"
)

// Stage is a step of a graph, in the moment of a prediction. Times are in ns.
type Stage struct {
	// Busy is how long it takes until an instance is free, Work how long its instances then need for what is queued.
	Busy, Work int64
	// Rows are the rows that are queued. They need the stages that follow, too.
	Rows float64
	// Instances is how many batches execute at a time, 0 for 1.
	Instances int
	// MaxBatch is the most rows of a batch, 0 for 1.
	MaxBatch int
	// Latency is that of the stage's batches.
	Latency Latency
	// Device is the one that the stage shares with other queues; nil for none.
	Device Device
	// Load is that of Device.
	Load Load
	// Queued and Undated are the parts of Load that are the stage's own.
	Queued, Undated int64
}

// Wait returns how long a request waits that arrives at the stage.
func (s *Stage) Wait() int64 {
	if s.Device == nil {
		return s.Busy + s.Work
	}
	return max(s.Busy, s.Load.Busy) + s.total()/s.parallel() + s.Load.others(s.Queued, s.Undated, s.total()+s.batch(1))
}

// total is Work, one batch after the other.
func (s *Stage) total() int64 { return s.Work * int64(max(s.Instances, 1)) }

// batch returns how long the next batch takes, of at least so many rows.
func (s *Stage) batch(rows float64) int64 {
	return s.Latency.Rows(math.Ceil(max(rows, s.Latency.Recent())))
}

// parallel returns how many batches execute at a time where the stage's do.
func (s *Stage) parallel() int64 {
	if s.Device != nil {
		return int64(max(s.Load.Slots, 1))
	}
	return int64(max(s.Instances, 1))
}

// Route predicts the end of requests in a graph of stages. It is made once for a graph; Stages are set before each prediction. It is not
// safe for concurrent use.
type Route struct {
	Stages []Stage

	after  [][]int32 // by stage: those whose outputs it reads, all of lower numbers
	ahead  [][]bool  // by stage and stage: whether the second lies before the first
	own    []int32   // by stage: its device where it has no Device
	device []int32   // by stage
	free   []int64   // by device

	finished []int64 // by stage
}

// NewRoute returns the route of a graph. after holds, for each stage, the numbers of those whose outputs it reads, which must be lower
// than its own. Stages with equal numbers in device share a device, one batch at a time, unless they have a Device.
func NewRoute(after [][]int32, device []int32) *Route {
	r := &Route{
		Stages: make([]Stage, len(after)), after: after, ahead: make([][]bool, len(after)), own: device, device: slices.Clone(device),
		finished: make([]int64, len(after)),
	}
	for i := range after {
		r.ahead[i] = make([]bool, len(after))
		for _, a := range after[i] {
			r.ahead[i][a] = true
			for j, before := range r.ahead[a] {
				r.ahead[i][j] = r.ahead[i][j] || before
			}
		}
	}
	r.free = make([]int64, r.owned()+len(after))
	return r
}

// owned returns the number of devices without those of Stage.Device, which have the numbers from there on.
func (r *Route) owned() int { return int(slices.Max(append([]int32{-1}, r.own...))) + 1 }

// Share assigns the stages to devices. It must be called when the Device of one may have changed.
func (r *Route) Share() {
	shared := int32(len(r.free) - len(r.Stages)) //nolint:gosec // stages are few
	for i := range r.Stages {
		device := r.own[i]
		if d := r.Stages[i].Device; d != nil {
			first := 0
			for r.Stages[first].Device != d {
				first++
			}
			device = shared + int32(first) //nolint:gosec // as above
		}
		r.device[i] = device
	}
}

// load sets when the devices are free for a request at a stage: those that others use, too, when they have done what is queued.
func (r *Route) load(stage int) {
	clear(r.free)
	for i := range r.Stages {
		s, d := &r.Stages[i], r.device[i]
		r.free[d] = max(r.free[d], s.Busy, s.Load.Busy)
	}
	if stage >= 0 {
		return
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.Device == nil || slices.Index(r.device, r.device[i]) < i {
			continue
		}
		var dated, undated, takes int64
		for j := range r.Stages {
			if own := &r.Stages[j]; r.device[j] == r.device[i] {
				dated, undated, takes = dated+own.Queued, undated+own.Undated, takes+own.total()+own.batch(1)
			}
		}
		r.free[r.device[i]] += s.Load.others(dated, undated, takes)
	}
}

// Arrival is the stage before the first ones.
const Arrival = -1

// addRest adds what the rows that are queued at a stage need of the stages that follow: they are there before the request is. Batches are
// as large as the last ones, or as what is queued makes them: if small ones alone were expected, so few requests would be admitted after a
// time of little load, or of refusals, that batches stay small.
func (r *Route) addRest(i int) {
	rows := r.Stages[i].Rows
	if rows == 0 {
		return
	}
	for j := i + 1; j < len(r.Stages); j++ {
		if l := &r.Stages[j].Latency; r.ahead[j][i] && l.Known() {
			usual := math.Ceil(max(l.Recent(), min(float64(r.Stages[j].MaxBatch), rows+r.Stages[j].Rows)))
			r.free[r.device[j]] += int64(rows / usual * float64(l.Rows(usual)) / float64(r.Stages[j].parallel()))
		}
	}
}

// After predicts how long a request takes from now on until its response that will leave a stage in so many ns, in a batch of so many
// rows. A request at Arrival
// waits for everything that is queued; one that is at a stage does not wait for what is queued before it, because devices that are shared
// execute later stages first (Pick). slowest is the stage at which the request waits longest, or that takes longest where it does not
// wait; it is Arrival if no stage follows.
//
// hot: no allocation.
func (r *Route) After(stage int, leaves int64, rows float64) (ends int64, slowest int) {
	r.load(stage)
	if stage >= 0 {
		d := r.device[stage]
		r.free[d] = leaves
		r.finished[stage] = leaves
	}
	for i := range r.Stages {
		if stage < 0 || i != stage && !r.ahead[stage][i] {
			r.free[r.device[i]] += r.Stages[i].total() / r.Stages[i].parallel()
			r.addRest(i)
		}
	}
	ends, slowest = leaves, Arrival
	longest := int64(-1)
	for i := stage + 1; i < len(r.Stages); i++ {
		if stage >= 0 && !r.ahead[i][stage] {
			continue
		}
		ready := leaves
		for _, a := range r.after[i] {
			if stage < 0 || int(a) == stage || r.ahead[a][stage] {
				ready = max(ready, r.finished[a])
			}
		}
		start := max(ready, r.free[r.device[i]])
		end := start + r.Stages[i].batch(rows)
		r.finished[i], r.free[r.device[i]] = end, end
		if r.Stages[i].Device != nil {
			r.free[r.device[i]] = start + (end-start)/r.Stages[i].parallel()
		}
		ends = max(ends, end)
		if part := end - ready; part > longest {
			longest, slowest = part, i
		}
	}
	return ends, slowest
}

// Finish returns how long it takes until a stage is done, as After predicted it last.
func (r *Route) Finish(stage int) int64 { return r.finished[stage] }

// Doubt returns the factor of predictions for requests that arrive, because the times of batches vary.
func (r *Route) Doubt() float64 {
	most := 0.0
	for i := range r.Stages {
		most = max(most, r.Stages[i].Latency.Deviation())
	}
	return Doubt(most)
}

// Alone returns how long a request takes that waits nowhere: the longest way through the stages' batches.
//
// hot: no allocation.
func (r *Route) Alone() (longest int64) {
	for i := range r.Stages {
		ready := int64(0)
		for _, a := range r.after[i] {
			ready = max(ready, r.finished[a])
		}
		r.finished[i] = ready + r.Stages[i].batch(1)
		longest = max(longest, r.finished[i])
	}
	return longest
}
