package inspect

import (
	"context"
	"math"
	"strconv"
)

// History reads the figures of the past. Implementations must be safe for concurrent use.
type History interface {
	// History returns the figures of a range of time. Errors are of the query, or of the file that has the past.
	History(ctx context.Context, q *HistoryQuery) (*HistoryView, error)
}

// HistoryQuery selects figures of the past. The zero value selects the busiest ensembles of the last hour, or the busiest models if no
// ensemble had requests.
type HistoryQuery struct {
	Model string // selects one model; empty: the busiest ones
	Top   int    // the number of the busiest ones, 0 for 5, at most 20
	// FromUs and ToUs are the range, microseconds since 1970 by the clock of the server. ToUs is now if it is 0.
	FromUs, ToUs int64
	// Seconds is the length of a range without FromUs, 0 for an hour. A client whose clock is wrong asks so for the last hours.
	Seconds int
	Steps   int // the most steps of the response, 0 for 240, at most 1000
}

// HistoryView has the figures of a range of time in steps of equal length. Every series has a value per step, null for a step in which
// the server did not run, or whose figures are not stored any more.
type HistoryView struct {
	FromUs int64 `json:"from_us"` // the start of the first step
	StepUs int64 `json:"step_us"`
	Steps  int   `json:"steps"`
	NowUs  int64 `json:"now_us"` // by the clock of the server
	// OldestUs is the start of the oldest figures. Stored reports whether figures outlive the server, which then has a data folder.
	OldestUs int64       `json:"oldest_us"`
	Stored   bool        `json:"stored"`
	Cores    Series      `json:"cores"` // processor cores that the server used
	Memory   Series      `json:"memory_bytes"`
	Tensors  Series      `json:"tensor_bytes"`
	GPUs     []GPUSeries `json:"gpus"`
	// Total sums the ensembles, or all models of a server without ensembles; its p99 is that of the slowest one. Nil in the figures of one
	// model.
	Total *ModelSeries `json:"total"`
	// Models are sorted by name. More is the number of others of their kind with requests in the range.
	Models []ModelSeries `json:"models"`
	More   int           `json:"more"`
}

// GPUSeries are the figures of a GPU over time. Utilization is the busy share, 0 to 1.
type GPUSeries struct {
	UUID        string `json:"uuid"`
	Utilization Series `json:"utilization"`
	Memory      Series `json:"memory_used_bytes"`
}

// ModelSeries are the figures of all versions of a model over time. P50Ns and P99Ns are those of its traced requests: of a step that is
// longer than 10 seconds, P50Ns is the mean of its parts, weighted by requests, and P99Ns the highest of them. They, BatchRows, QueueNs and
// ComputeNs are null in steps without requests.
type ModelSeries struct {
	Name      string `json:"name"`
	Ensemble  bool   `json:"ensemble"`
	Rate      Series `json:"rate"` // successful requests per second
	Errors    Series `json:"error_rate"`
	P50Ns     Series `json:"p50_ns"`
	P99Ns     Series `json:"p99_ns"`
	Queue     Series `json:"queue"` // the most requests that waited at the end of a part
	BatchRows Series `json:"batch_rows"`
	QueueNs   Series `json:"queue_ns"` // of a request, the mean
	ComputeNs Series `json:"compute_ns"`
}

// Series are values over time. NaN is null in JSON, other values have four digits.
type Series []float64

// MarshalJSON implements json.Marshaler.
func (s Series) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 2+6*len(s)), '[')
	for i, v := range s {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendFloat(b, rounded(v), 'g', -1, 64)
	}
	return append(b, ']'), nil
}

// rounded returns a value with four digits, or as a whole number if it has more.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, min(math.Floor(math.Log10(math.Abs(v)))-3, 0))
	return math.Round(v/unit) * unit
}
