package tune

import (
	"time"
)

// Data is a report for programs.
type Data struct {
	Ensemble    string  `json:"ensemble"`
	ObjectiveMS float64 `json:"objective_ms"`
	Cores       int     `json:"cores"`
	Samples     int     `json:"sample_requests"`
	// Rate is the traffic of the validation in requests per second.
	Rate     float64        `json:"rate"`
	Models   []ModelData    `json:"models"`
	Overhead OverheadData   `json:"overhead"`
	Current  CandidateData  `json:"current"`
	Advice   *CandidateData `json:"advice"` // null if nothing better was found
	Changes  []ChangeData   `json:"changes"`
	// Validated says that the advice is good as measured, Holds that its predictions are within 15 %, too.
	Validated bool            `json:"validated"`
	Holds     bool            `json:"holds"`
	Reason    string          `json:"reason,omitempty"` // why the advice does not hold
	Pareto    []OperatingData `json:"pareto"`
	Foreign   float64         `json:"foreign_cores"`
	Seconds   float64         `json:"elapsed_s"`
}

// ModelData is a measured model.
type ModelData struct {
	Name    string `json:"name"`
	Largest int32  `json:"largest_max_batch_size"` // that was tried
	Fixed   string `json:"max_batch_size_fixed,omitempty"`
	// Versions are the versions in other precisions.
	Versions []VersionData `json:"versions,omitempty"`
	// Offer is the command that makes one where there is none.
	Offer string `json:"offer,omitempty"`
	// Costs are by version and number of threads.
	Costs []CostData `json:"costs"`
}

// VersionData is a version in another precision than the current one.
type VersionData struct {
	Version   int64  `json:"version"`
	Precision string `json:"precision"`
	Refused   string `json:"refused,omitempty"` // why it was not tried
}

// CostData is what executions of a version with a number of threads take. Errors are parts of the measured time.
type CostData struct {
	Version int64   `json:"version,omitempty"` // none for the current one
	Threads int     `json:"threads,omitempty"`
	One     float64 `json:"one_request_us"`
	Cores   float64 `json:"cores"`
	Error   float64 `json:"fit_error"`
	// Beyond is the error in batches beyond the current max_batch_size, null if none was measured.
	Beyond *float64 `json:"fit_error_beyond_max_batch_size"`
}

// OverheadData is what requests take besides their models.
type OverheadData struct {
	CPU      float64 `json:"cpu_us"`
	Wait     float64 `json:"wait_us"`
	Slowdown float64 `json:"slowdown"`
}

// CandidateData are settings of the models with what was predicted and measured.
type CandidateData struct {
	Settings []SettingData `json:"settings"`
	// Highest is the highest predicted rate within the objective; null if a rate was given.
	Highest   *float64      `json:"highest_rate"`
	Predicted OperatingData `json:"predicted"`
	Measured  OperatingData `json:"measured"`
}

// SettingData are the settings of a model.
type SettingData struct {
	Model     string  `json:"model"`
	Version   int64   `json:"version,omitempty"` // in place of the current one
	Precision string  `json:"precision,omitempty"`
	Instances int     `json:"instances"`
	Threads   int     `json:"threads,omitempty"`
	MaxBatch  int32   `json:"max_batch_size"`
	Batching  bool    `json:"dynamic_batching"`
	Preferred []int32 `json:"preferred_batch_size,omitempty"`
	Delay     int64   `json:"max_queue_delay_microseconds,omitempty"`
}

// OperatingData is an operating point.
type OperatingData struct {
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Throughput float64 `json:"throughput"`
	Cores      float64 `json:"cores"`
}

// ChangeData is a change of a file.
type ChangeData struct {
	Model string `json:"model"`
	Path  string `json:"path"`
	Diff  string `json:"diff"`
}

// Data returns the report for programs.
func (r *Report) Data() *Data {
	d := &Data{
		Ensemble: r.Ensemble, ObjectiveMS: millis(r.Objective), Cores: r.Cores, Samples: len(r.Network.Samples), Rate: r.Rate,
		Overhead: OverheadData{micros(r.Overhead.CPU), micros(r.Overhead.Wait), r.slowdown()},
		Current:  r.candidate(&r.Current), Changes: []ChangeData{}, Pareto: []OperatingData{}, Foreign: r.Foreign, Seconds: r.Elapsed.Seconds(),
	}
	d.Validated, _ = r.Validated()
	d.Holds, d.Reason = r.Holds()
	if r.Changed {
		advice := r.candidate(&r.Advice)
		d.Advice = &advice
	}
	for i := range r.Network.Models {
		d.Models = append(d.Models, r.Network.model(i))
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		d.Changes = append(d.Changes, ChangeData{c.Model, c.Path, c.Diff()})
	}
	for _, p := range Pareto(r.Points) {
		d.Pareto = append(d.Pareto, operating(&p.Outcome))
	}
	return d
}

func (n *Network) model(i int) ModelData {
	m := &n.Models[i]
	d := ModelData{Name: m.Name, Largest: m.Largest, Fixed: m.Fixed, Offer: m.Offer}
	size := n.typical(i)
	for _, a := range m.Versions {
		d.Versions = append(d.Versions, VersionData{a.Number, string(a.Precision), a.Refused})
	}
	for _, x := range m.executions() {
		c := m.Costs[x]
		var one Batch
		one.add(size)
		row := CostData{Version: x.Version.Number, Threads: x.Threads, One: c.Wall(&one) / float64(time.Microsecond), Cores: c.Width, Error: c.Error}
		if c.BeyondBatches > 0 {
			row.Beyond = &c.Beyond
		}
		d.Costs = append(d.Costs, row)
	}
	return d
}

func (r *Report) candidate(c *Candidate) CandidateData {
	d := CandidateData{Predicted: operating(&c.Predicted), Measured: operating(&c.Measured)}
	if !r.Given {
		d.Highest = &c.Highest
	}
	for i := range c.Settings {
		s := &c.Settings[i]
		d.Settings = append(d.Settings, SettingData{r.Network.Models[i].Name, s.Version.Number, string(s.Version.Precision), s.Instances, s.Threads, s.MaxBatch, s.Batching, s.Preferred, s.Delay.Microseconds()})
	}
	return d
}

func operating(o *Outcome) OperatingData {
	return OperatingData{micros(o.P50), micros(o.P99), o.Throughput, o.CPU}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
