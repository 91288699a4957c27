package infer

// RouteCatalog is a Catalog that knows how the requests of ensembles are routed. Implementations must be safe for concurrent use.
type RouteCatalog interface {
	Catalog
	// Routes returns the state of the routes of a version (0: the latest). A model without routes has an empty list.
	Routes(model string, version int64) (*Routes, error)
}

// Routes is the state of the splits, canaries and shadows of an ensemble at a moment. Counts are since the server started.
type Routes struct {
	Model   string  `json:"model_name"`
	Version string  `json:"model_version"`
	Routes  []Route `json:"routes"`
}

// Route is the state of one split, canary or shadow.
type Route struct {
	// Step is what is routed: the name of a step, or that of the ensemble for its requests as a whole.
	Step string `json:"step"`
	// Kind is split, canary or shadow.
	Kind string `json:"kind"`
	// Key is the request parameter whose value decides; empty for chance.
	Key string `json:"key,omitempty"`
	// Alternatives are those of a split or canary: a canary, then the step's own model.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	Canary       *Canary       `json:"canary,omitempty"`
	Shadow       *Shadow       `json:"shadow,omitempty"`
}

// Alternative is a model among which requests are divided.
type Alternative struct {
	Model string `json:"model"` // MODEL or MODEL:VERSION
	// Share is the present share of the requests, from 0 to 1.
	Share    float64 `json:"share"`
	Requests uint64  `json:"requests"` // that ended, failures included
	Errors   uint64  `json:"errors"`
	// MeanNs is the mean time of the requests that succeeded, in ns; 0 without one.
	MeanNs uint64 `json:"mean_latency_ns"`
}

// CanaryState says whether a canary still changes its share.
type CanaryState string

// The states of a canary.
const (
	CanaryRunning    CanaryState = "running"
	CanaryPassed     CanaryState = "passed" // its last stage; the share stays
	CanaryRolledBack CanaryState = "rolled_back"
)

// Canary is the state of a canary. Its counts are since the stage began.
type Canary struct {
	State CanaryState `json:"state"`
	// Reason is why it was rolled back; else empty.
	Reason string `json:"reason,omitempty"`
	// Stages are the shares; Stage is the present one, from 1. A canary that was rolled back keeps the stage in which it was.
	Stages []float64 `json:"stages"`
	Stage  int       `json:"stage"`
	// Requests and Errors are those of the canary; OwnRequests and OwnErrors those of the step's own model.
	Requests    int64 `json:"requests"`
	Errors      int64 `json:"errors"`
	OwnRequests int64 `json:"own_requests"`
	OwnErrors   int64 `json:"own_errors"`
	// Remaining counts the requests that the canary must still execute before its stage ends; 0 when it does not run.
	Remaining int64 `json:"remaining_requests"`
	// Drift is nil without the rule max_drift.
	Drift *Drift `json:"drift,omitempty"`
}

// Drift counts the responses of a canary to copies of requests.
type Drift struct {
	Copies    int     `json:"copies"`
	Different int     `json:"different"`
	Max       float64 `json:"max"` // the share that may differ
}

// Shadow is the state of a shadow: its copies by result.
type Shadow struct {
	Model       string  `json:"model"`
	Share       float64 `json:"share"`
	InFlight    int64   `json:"in_flight"`
	MaxInFlight int     `json:"max_in_flight"`
	Equal       uint64  `json:"equal"`
	Different   uint64  `json:"different"`
	Failed      uint64  `json:"failed"`
	Dropped     uint64  `json:"dropped"`
}
