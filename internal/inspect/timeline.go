package inspect

import (
	"cmp"
	"slices"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// TimelineQuery selects executed batches: those that ran in an interval of time, in microseconds since 1970, of some models, or of all.
type TimelineQuery struct {
	FromUs, ToUs int64
	Models       []string
}

// TimelineView shows what ran on each instance, and when. It has batches with an examined request only, the last few thousand of them.
type TimelineView struct {
	FromUs int64 `json:"from_us"`
	ToUs   int64 `json:"to_us"`
	NowUs  int64 `json:"now_us"`
	// OldestUs is when the oldest batch that is stored ended, 0 without one.
	OldestUs int64      `json:"oldest_us"`
	Lanes    []LaneView `json:"lanes"` // ordered by model, version and instance
	Runs     []RunView  `json:"runs"`  // ordered by their begin
	More     int        `json:"more"`  // how many of the oldest runs were left out
	Share    *ShareSeen `json:"share"` // nil where the executions are not counted
}

// LaneView is an instance of a model.
type LaneView struct {
	Model    string `json:"model"`
	Version  int64  `json:"version"`
	Instance int32  `json:"instance"`
	Place    string `json:"place"`
}

// RunView is a batch that ran. Lane is a position in Lanes, StartNs an offset from FromUs. The phases follow each other.
type RunView struct {
	ID       uint64 `json:"id"`
	Lane     int    `json:"lane"`
	StartNs  int64  `json:"start_ns"`
	InputNs  int64  `json:"input_ns"`
	InferNs  int64  `json:"infer_ns"`
	OutputNs int64  `json:"output_ns"`
	Rows     int32  `json:"rows"`
	Members  int32  `json:"members"`
	Failed   bool   `json:"failed,omitempty"`
}

// ShareSeen says how many of the batches that ended in an interval are known. The interval is that of the counters, which are read once a
// second, and so may be a little longer than the interval of the view.
type ShareSeen struct {
	FromUs   int64  `json:"from_us"`
	ToUs     int64  `json:"to_us"`
	Executed uint64 `json:"executed"`
	Known    uint64 `json:"known"`
}

// Timeline collects executed batches. The zero value is not valid; see NewTimeline.
type Timeline struct {
	view  TimelineView
	lanes map[LaneView]int
	epoch int64
}

// NewTimeline returns an empty timeline. Epoch is the wall-clock time, in nanoseconds since 1970, at which telemetry.Now was 0.
func NewTimeline(q *TimelineQuery, epoch int64) *Timeline {
	return &Timeline{view: TimelineView{FromUs: q.FromUs, ToUs: q.ToUs, Lanes: []LaneView{}, Runs: []RunView{}}, lanes: map[LaneView]int{}, epoch: epoch}
}

// Add adds a batch.
func (t *Timeline) Add(b *tracing.Batch) {
	at := LaneView{b.Model, b.Version, b.Instance, b.Place.String()}
	lane, ok := t.lanes[at]
	if !ok {
		lane = len(t.view.Lanes)
		t.lanes[at] = lane
		t.view.Lanes = append(t.view.Lanes, at)
	}
	x := batchTimes(b)
	t.view.Runs = append(t.view.Runs, RunView{
		ID: b.Batch, Lane: lane, StartNs: t.epoch + x.Start - t.view.FromUs*1000, InputNs: x.InputEnd - x.Start, InferNs: x.InferEnd - x.InputEnd,
		OutputNs: x.End - x.InferEnd, Rows: b.BatchRows, Members: b.Members, Failed: b.Failed,
	})
}

// Oldest notes the end of a stored batch, whether it is added or not.
func (t *Timeline) Oldest(b *tracing.Batch) {
	if at := (t.epoch + batchTimes(b).End) / 1000; t.view.OldestUs == 0 || at < t.view.OldestUs {
		t.view.OldestUs = at
	}
}

// View returns the timeline, in order. Nothing may be added afterwards.
func (t *Timeline) View() *TimelineView {
	v := &t.view
	order := slices.Clone(v.Lanes)
	slices.SortFunc(order, func(a, b LaneView) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Place, b.Place))
	})
	to := make([]int, len(order))
	for i, l := range order {
		to[t.lanes[l]] = i
	}
	for i := range v.Runs {
		v.Runs[i].Lane = to[v.Runs[i].Lane]
	}
	v.Lanes = order
	slices.SortFunc(v.Runs, func(a, b RunView) int { return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.ID, b.ID)) })
	return v
}

// end returns when a run ended, in microseconds since 1970.
func (v *TimelineView) end(r *RunView) int64 {
	return v.FromUs + (r.StartNs+r.InputNs+r.InferNs+r.OutputNs)/1000
}

// Seen sets Share: executed batches ended after fromUs and until toUs.
func (v *TimelineView) Seen(fromUs, toUs int64, executed uint64) {
	s := &ShareSeen{FromUs: fromUs, ToUs: toUs, Executed: executed}
	for i := range v.Runs {
		if end := v.end(&v.Runs[i]); end > fromUs && end <= toUs {
			s.Known++
		}
	}
	s.Known = min(s.Known, executed) // a batch is counted a moment after it ended
	v.Share = s
}

// Cut restricts the runs to an interval, and to the newest of them. Lanes stay.
func (v *TimelineView) Cut(fromUs, toUs int64, most int) {
	shift := (fromUs - v.FromUs) * 1000
	runs := v.Runs[:0]
	for _, r := range v.Runs {
		if r.StartNs-shift <= (toUs-fromUs)*1000 && v.end(&r) >= fromUs {
			r.StartNs -= shift
			runs = append(runs, r)
		}
	}
	v.FromUs, v.ToUs, v.More = fromUs, toUs, max(0, len(runs)-most)
	v.Runs = runs[v.More:]
}

// Ran reports whether a batch ran in the interval of a query, of one of its models.
func (q *TimelineQuery) Ran(b *tracing.Batch, epoch int64) bool {
	x := batchTimes(b)
	return b.Batch != 0 && epoch+x.End >= q.FromUs*1000 && epoch+x.Start <= q.ToUs*1000 && (len(q.Models) == 0 || slices.Contains(q.Models, b.Model))
}

// batchTimes returns the times of a batch: those of the device where they are known.
func batchTimes(b *tracing.Batch) telemetry.Times {
	if b.Device.End != 0 {
		return b.Device
	}
	return telemetry.Times{Start: b.Start, InputEnd: b.InputEnd, InferEnd: b.InferEnd, End: b.End}
}
