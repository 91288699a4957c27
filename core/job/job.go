// Package job defines durable jobs: a job runs one model or ensemble over every row of a dataset. The package is the
// contract between those who ask for jobs (the HTTP API, the command `tutti jobs`, the dashboard) and pipeline/durable,
// which runs them on Temporal.
//
// A job goes through these states:
//
//	checking  -> running  -> completed
//	             | ^     \-> failed, cancelled
//	          paused, waiting
//
// The dataset is read twice. While the job is checking, the rows are counted and cut into chunks, and the first rows go
// through the model. Then each chunk is executed, on any worker, as often as it takes until it has succeeded. The result
// of a chunk is a part: a file below Spec.Output. The manifest of the output names every part, so that each row has
// exactly one result, whatever process was killed meanwhile.
package job

import (
	"context"
	"time"
)

// State is the state of a job.
type State string

// The states. Completed, Failed and Cancelled are final; a completed job may have failed rows.
const (
	Checking  State = "checking"  // the dataset and the output are checked, rows are counted
	Running   State = "running"   // chunks are executed
	Paused    State = "paused"    // chunks in execution end, no other starts until Resume
	Waiting   State = "waiting"   // no chunk progresses; Status.Reason says what for, for example a full disk
	Completed State = "completed" // every row has a result or is listed as failed
	Failed    State = "failed"    // Status.Reason says why; results so far are kept, and are reused by the same job
	Cancelled State = "cancelled" // by Cancel; results so far are kept, and are reused by the same job
)

// Final reports whether a job in this state has ended.
func (s State) Final() bool { return s == Completed || s == Failed || s == Cancelled }

// Place is a dataset: a file, or a folder, and the format of its content.
type Place struct {
	// URI is a path, or an address in a bucket: s3://, gs:// or as://. For example, "s3://texts/2026/*.jsonl".
	URI string `json:"uri"`
	// Format is jsonl, csv, parquet, npz, images, texts or tensors; empty for what the names of the files say.
	Format string `json:"format,omitempty"`
}

// Spec is the order for a job.
type Spec struct {
	// ID names the job. It is chosen by the service if empty. Submitting the same ID and Spec twice is one job.
	ID      string `json:"id,omitempty"`
	Model   string `json:"model"`
	Version int64  `json:"version,omitempty"` // 0: the version that serves requests without a version
	Input   Place  `json:"input"`
	// Output is a folder. It must be empty, or have the results of an earlier job of the same model, which are reused for
	// rows that are the same.
	Output Place `json:"output"`
	// Columns names the column of each input of the model. An input that is not named has the column of its own name.
	Columns map[string]string `json:"columns,omitempty"`
	// Results names the column of each output of the model that is written. Empty: all outputs, with their own names.
	Results map[string]string `json:"results,omitempty"`
	// Keep names columns of the input that are copied to the output. For example, the id of a document.
	Keep []string `json:"keep,omitempty"`
	// MaxFailed ends the job as failed when more rows than this have failed. Nil: no limit.
	MaxFailed *int64 `json:"max_failed,omitempty"`
	// ChunkRows is the number of rows of a chunk. 0: chosen so that a chunk takes some seconds.
	ChunkRows int64 `json:"chunk_rows,omitempty"`
	// Chunks is the number of chunks that are executed at a time. 0: as many as the workers take.
	Chunks int `json:"chunks,omitempty"`
	// Overwrite discards what the output has, whatever it is.
	Overwrite bool `json:"overwrite,omitempty"`
	// OtherModel says what a worker does whose model differs from the one that the job started with: "wait" (the
	// default) leaves the chunks to other workers, "fail" ends the job.
	OtherModel string `json:"other_model,omitempty"`
	// Device says where the model must be: "gpu" or "cpu"; empty for anywhere. An ensemble is on a GPU if one of its steps is.
	// Only workers whose model is there take the chunks.
	Device string `json:"device,omitempty"`
	// Priority is from 1, the highest, to 5; 0 is 3. It orders jobs, and never precedes online requests.
	Priority int `json:"priority,omitempty"`
	// Group shares the workers equally between jobs of different groups, for example the name of a team.
	Group string `json:"group,omitempty"`
}

// Rows counts the rows of a job.
type Rows struct {
	Total  int64 `json:"total"`  // 0 while the rows are counted
	Done   int64 `json:"done"`   // that have a result, Reused included
	Failed int64 `json:"failed"` // that have an error instead
	Reused int64 `json:"reused"` // whose result is from an earlier job with the same output
}

// Problem is a failure from which a job goes on: a chunk that is tried again.
type Problem struct {
	Chunk   int64     `json:"chunk"`            // -1: the whole job, for example while it is checking
	Attempt int       `json:"attempt"`          // of the attempt that failed, from 1
	Worker  string    `json:"worker,omitempty"` // that had the attempt; empty while none has
	Error   string    `json:"error"`
	Next    time.Time `json:"next,omitzero"` // of the next attempt
}

// Status is a job as it is now.
type Status struct {
	ID       string    `json:"id"`
	Spec     Spec      `json:"spec"`
	State    State     `json:"state"`
	Reason   string    `json:"reason,omitempty"` // of the states waiting and failed
	Created  time.Time `json:"created"`
	Ended    time.Time `json:"ended,omitzero"`
	Rows     Rows      `json:"rows"`
	Chunks   int64     `json:"chunks"`      // 0 while the rows are counted
	Finished int64     `json:"chunks_done"` // of Chunks
	// Rate is the number of rows per second in the last minute, and Left the time that the other rows take at this rate.
	Rate     float64   `json:"rows_per_second,omitempty"`
	Left     float64   `json:"seconds_left,omitempty"`
	Retries  int64     `json:"retries"`
	Problems []Problem `json:"problems,omitempty"` // of the chunks that are tried again at the moment
	// Fingerprint identifies the content of the model that the job runs.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Manifest is the place of the manifest of a completed job.
	Manifest string `json:"manifest,omitempty"`
}

// FailedRow is a row without a result.
type FailedRow struct {
	Row   int64  `json:"row"`    // its number in the dataset, from 0
	Place string `json:"place"`  // its file and its line or number there. For example, "b.jsonl:17".
	Error string `json:"error"`  // what the model or the reader of the dataset said
	Code  string `json:"status"` // of core/status. For example, "INVALID_ARGUMENT".
	// Reason says why, for programs, and Retryable whether the same row may succeed when it is sent again: docs/errors.md.
	Reason    string `json:"reason"`
	Retryable bool   `json:"retryable"`
}

// Manifest lists the results of a completed job. It is written last, in one step.
type Manifest struct {
	Job         string `json:"job"`
	Model       string `json:"model"`
	Version     int64  `json:"version"`
	Fingerprint string `json:"fingerprint"`
	Format      string `json:"format"`
	Rows        Rows   `json:"rows"`
	Parts       []Part `json:"parts"` // in the order of the rows
	// Sum is a checksum of the results of all rows in their order, whatever the parts.
	Sum string `json:"sha256"`
}

// Part is a file with the results of some consecutive rows of the dataset.
type Part struct {
	Path   string `json:"path"` // below the output
	First  int64  `json:"first_row"`
	Rows   int64  `json:"rows"`   // with a result
	Failed int64  `json:"failed"` // listed in the file Errors, in the form of FailedRow
	Errors string `json:"errors,omitempty"`
	Bytes  int64  `json:"bytes"`
	Sum    string `json:"sha256"` // of the file
}

// Service runs jobs. Implementations must be safe for concurrent use. Errors have the code NotFound for an unknown job,
// InvalidArg for a Spec that cannot be run, AlreadyExists for an ID in use by another Spec, and Unavailable while Temporal
// cannot be reached.
type Service interface {
	// Submit starts a job and returns when it is durable. What takes time is checked later, in the state Checking.
	Submit(ctx context.Context, spec *Spec) (*Status, error)
	// List returns the jobs, the latest first: at most limit of them. after is the ID of the last job of the previous page.
	List(ctx context.Context, after string, limit int) ([]Status, error)
	Show(ctx context.Context, id string) (*Status, error)
	// Pause stops new chunks until Resume. Both are no error in the state that they lead to.
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	// Cancel ends a job. Chunks in execution are abandoned.
	Cancel(ctx context.Context, id string) error
	// Failures returns rows that have failed, by their number: at most limit of them, from row on.
	Failures(ctx context.Context, id string, row int64, limit int) ([]FailedRow, error)
	// Result returns the manifest of a completed job.
	Result(ctx context.Context, id string) (*Manifest, error)
}
