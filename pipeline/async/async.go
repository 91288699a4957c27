// Package async executes single inference requests later: POST /v2/models/NAME/infer with "Prefer: respond-async".
//
// A request is a standalone activity of Temporal, so that it survives the end of any process:
//
//	client --Submit--> Service: store ID.request, start the activity ID on the queue of the model
//	                   Worker:  read ID.request, execute it as an online request, write ID.response,
//	                            remove ID.request, start the activity ID-callback if the request has a callback
//	client --Result--> Service: read ID.response
//
// The storage is a folder or a bucket that the server and its workers share. Temporal has names and sizes only. A response
// is written in one step, so that a request which was executed twice, because a process was killed in between, still has one
// result. What has a response has ended, whatever Temporal says: results are read while Temporal is away.
//
//   - service.go: Service, which implements job.Requests; state.go: the state of a request
//   - records.go: the records of the storage
//   - worker.go: Worker; execute.go: the activity of a request
//   - callback.go: the activity of a callback; hosts.go: where callbacks may go
package async

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/pipeline/engine"
)

// Settings are what a Service and a Worker need of the server around them.
type Settings struct {
	// Client is connected to a namespace of a Temporal server. Required. It may be lazy: the Temporal server may be away.
	Client client.Client
	// Store is the folder or the address in a bucket where requests and results are. Required.
	Store string
	// Data configures the access to a bucket. Nil for the default.
	Data *dataset.Options
	// Execute executes a request as the online endpoint does. Required for a Worker. The caller closes the Reply's Body.
	Execute func(ctx context.Context, req *job.Request) *job.Reply
	// Catalog lists the loaded models. Required for a Worker.
	Catalog infer.Catalog
	// Callbacks sends callbacks. Nil: requests with a callback are refused.
	Callbacks *Callbacks
	// Queue is the prefix of the task queues. Default: tutti.
	Queue string
	// Keep is how long a request may wait for its execution, and how long its result is kept. Default: a day.
	Keep time.Duration
	// Failure gives the reason of calls to Temporal whose retries a deadline ended. Optional.
	Failure engine.Failure
	// Log receives what happens. Default: nothing is logged.
	Log *slog.Logger

	_ struct{}
}

const (
	defaultQueue  = "tutti"
	defaultKeep   = 24 * time.Hour
	settleTimeout = 2 * time.Second  // of the wait until Temporal knows of the end of a request
	callTimeout   = 10 * time.Second // of a call to Temporal; the SDK gives one attempt half of it
	// maxStarts bounds the requests that are started at a time: a Temporal server with a database on a disk executes the
	// others one after another anyway, and calls would time out.
	maxStarts = 16
)

func (s *Settings) complete() error {
	if s.Client == nil || s.Store == "" {
		return errors.New("asynchronous requests need a Temporal client and a storage")
	}
	s.Queue, s.Keep = cmp.Or(s.Queue, defaultQueue), cmp.Or(s.Keep, defaultKeep)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// order is what Temporal stores of a request. It never has its content.
type order struct {
	ID      string    `json:"id"`
	Model   string    `json:"model"`
	Version string    `json:"version,omitempty"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
	// Callback says that the request has one. Its URL may contain a secret, and is in the storage.
	Callback bool `json:"callback,omitempty"`
}

// The names of activities, and of the errors of those that are not tried again.
const (
	activityInfer    = "tutti.infer"
	activityCallback = "tutti.callback"
	errFatal         = "fatal"
	errWaits         = "waits"
)

// callbackID returns the ID of the activity of a request's callback.
func callbackID(id string) string { return id + "-callback" }

// queue returns the task queue of a model's requests. It has the name of the storage: a process with another one cannot
// execute them.
func (s *Settings) queue(store, model string) string {
	return s.Queue + "-requests-" + store + "-" + model
}

// callbackQueue returns the task queue of callbacks.
func (s *Settings) callbackQueue(store string) string { return s.Queue + "-callbacks-" + store }
