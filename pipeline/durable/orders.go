package durable

import (
	"time"

	"github.com/tutti-server/tutti/core/job"
)

// The names of the workflow type, its activities, signals and query, as they are stored in histories. Replay tests over
// stored histories fail when one changes.
const (
	workflowType   = "tutti.job"
	activityCheck  = "tutti.check"
	activityCut    = "tutti.cut"
	activityChunk  = "tutti.chunk"
	activityFinish = "tutti.finish"
	signalPause    = "pause"
	signalResume   = "resume"
	queryProgress  = "progress"
	memoProgress   = "progress"
	memoSpec       = "spec"
)

// order is the argument of the workflow: a job with everything that one run hands to the next one (continue-as-new). It
// holds counters and bounded lists only, so its size does not depend on the number of rows.
type order struct {
	Spec     job.Spec `json:"spec"`
	Queue    string   `json:"queue"`         // the prefix of the task queues
	Run      string   `json:"run,omitempty"` // the first run of the workflow, which names what the job writes
	Checked  *checked `json:"checked,omitempty"`
	Plan     *plan    `json:"plan,omitempty"`
	Progress progress `json:"progress"`
	Next     int64    `json:"next"`            // the first chunk that was never started
	Again    []int64  `json:"again,omitempty"` // chunks that are started again, before Next: at most maxWindow
	Window   int      `json:"window"`          // chunks that are scheduled at a time
}

// progress is the job as the query and the memo show it.
type progress struct {
	State       job.State `json:"state"`
	Paused      bool      `json:"paused,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Created     time.Time `json:"created"`
	Ended       time.Time `json:"ended,omitzero"`
	Rows        job.Rows  `json:"rows"`
	Chunks      int64     `json:"chunks"`
	Finished    int64     `json:"finished"`
	Retries     int64     `json:"retries"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Manifest    string    `json:"manifest,omitempty"`
	Samples     []sample  `json:"samples,omitempty"` // of the last minute, oldest first: at most maxSamples
}

// sample is the number of rows that were done at a time.
type sample struct {
	At   time.Time `json:"at"`
	Done int64     `json:"done"`
}

// place names what a job writes. The activities find the rest of the job's order in the output (see jobFile).
type place struct {
	Job    string    `json:"job"`
	Run    string    `json:"run"`
	Output job.Place `json:"output"`
}

// checkOrder is the argument of the activity check.
type checkOrder struct {
	place
	Spec job.Spec `json:"spec"`
}

// checked is the result of the activity check: what the job is pinned to.
type checked struct {
	Version     int64  `json:"version"`
	Fingerprint string `json:"fingerprint"`
	ChunkRows   int64  `json:"chunk_rows"`
}

// plan is the result of the activity cut.
type plan struct {
	Rows   int64 `json:"rows"`
	Chunks int64 `json:"chunks"`
}

// chunkOrder is the argument of the activity chunk.
type chunkOrder struct {
	place
	Number int64 `json:"number"`
}

// chunkDone is the result of the activity chunk.
type chunkDone struct {
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed,omitempty"`
	Reused  int64 `json:"reused,omitempty"`
	Retries int64 `json:"retries,omitempty"` // attempts before the one that succeeded
	Waited  int64 `json:"waited,omitempty"`  // milliseconds in the task queue
	Took    int64 `json:"took,omitempty"`    // milliseconds of the attempt that succeeded
	// Paused: the job was paused before the chunk was started, which must be started again.
	Paused bool   `json:"paused,omitempty"`
	Error  string `json:"error,omitempty"` // of the first failed row
}

// finishOrder is the argument of the activity finish.
type finishOrder struct {
	place
	Plan plan `json:"plan"`
}

// finished is the result of the activity finish.
type finished struct {
	Rows     job.Rows `json:"rows"`
	Chunks   int64    `json:"chunks"` // that are whole
	Manifest string   `json:"manifest,omitempty"`
	Bad      []int64  `json:"bad,omitempty"` // chunks whose results are lost or damaged: at most maxWindow. They are run again.
}
