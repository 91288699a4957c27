package inspect

import (
	"context"
	"encoding/json"
)

// Details describe single models. Implementations must be safe for concurrent use.
type Details interface {
	// Detail returns what is known of a model, also of one that cannot serve. The error is NotFound for an unknown name.
	Detail(ctx context.Context, model string) (*ModelDetail, error)
}

// ModelDetail is a model with its versions.
type ModelDetail struct {
	Name     string `json:"name"`
	Ensemble bool   `json:"ensemble"`
	Dir      string `json:"dir"` // its folder, or its address in a bucket; empty for files of a load request
	// Served is the configuration as the model runs with it, of its latest version, nil if none serves. Written is the configuration as its
	// file or the load request has it, nil if it cannot be read: WrittenError says why. What Served has more was filled in.
	Served       json.RawMessage `json:"served"`
	Written      json.RawMessage `json:"written"`
	WrittenError string          `json:"written_error,omitempty"`
	// Override reports that the configuration is that of a load request, and not of a file. Changed reports that files have changed since the
	// model was loaded.
	Override bool            `json:"override,omitempty"`
	Changed  bool            `json:"changed,omitempty"`
	UsedBy   []string        `json:"used_by"` // the ensembles that call it
	Versions []VersionDetail `json:"versions"`
	// Loads are the last loads, unloads and failures, newest first, since the server started.
	Loads []LoadEvent `json:"loads"`
}

// VersionDetail is a version of a model.
type VersionDetail struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	// Queued and Running are its requests that wait for an instance and the others in flight. Utilization is the part of its instances that
	// execute now, 0 to 1; of an ensemble that of its busiest step.
	Queued      int64   `json:"queued"`
	Running     int64   `json:"running"`
	Utilization float64 `json:"utilization"`
	// Instances are nil for an ensemble, and while the repository is changed or the model is evicted.
	Instances []InstanceView `json:"instances"`
}

// InstanceView is an instance of a model. Count stands for so many equal ones, which a model that executes in several threads has.
type InstanceView struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`  // of its instance group, for example "KIND_GPU"
	Place   string `json:"place"` // for example "device:0"
	Count   int    `json:"count"`
	Passive bool   `json:"passive,omitempty"`
	// Process reports that it runs in a process of its own, Alive that this process runs, and Memory how much of it is resident.
	Process bool  `json:"process,omitempty"`
	Alive   bool  `json:"alive,omitempty"`
	Memory  int64 `json:"memory_bytes,omitempty"`
}

// LoadEvent is a change of a model: "loaded", "failed", "kept" for a failed load whose old version still serves, "unloaded", "updated" for
// other instances of a version that stays, "evicted" to make room, and "loaded again" after that.
type LoadEvent struct {
	AtUs     int64    `json:"at_us"` // its end
	What     string   `json:"what"`
	Versions []string `json:"versions"`
	TookNs   int64    `json:"took_ns,omitempty"`
	Cause    string   `json:"cause"`
	Reason   string   `json:"reason,omitempty"` // of a failure, shortened
}
