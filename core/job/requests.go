package job

import (
	"context"
	"io"
	"net/http"
	"time"
)

// RequestState is the state of an asynchronous inference request.
//
//	queued -> running -> succeeded, failed
//	     \----------\-> cancelled
type RequestState string

// The states. Succeeded, RequestFailed and RequestCancelled are final.
const (
	Queued           RequestState = "queued"    // it waits for a worker, or for its next attempt: RequestStatus.Reason says why
	RequestRunning   RequestState = "running"   // a worker executes it
	Succeeded        RequestState = "succeeded" // the result is the model's response
	RequestFailed    RequestState = "failed"    // the result is the error that the request had without Prefer
	RequestCancelled RequestState = "cancelled" // there is no result
)

// Final reports whether a request in this state has ended.
func (s RequestState) Final() bool {
	return s == Succeeded || s == RequestFailed || s == RequestCancelled
}

// Request is an inference request that is executed later. It has been checked as far as a front end checks requests.
type Request struct {
	// Model and Version are those of the path. Version is empty for the one that serves requests without a version.
	Model, Version string
	// Header has the fields that the response depends on, with canonical names.
	Header http.Header
	// Body is the body as the client sent it: JSON, binary tensors, compressed or not.
	Body []byte
	// Callback is the URL that is told when the request has ended; empty for none.
	Callback string
}

// Reply is the response to a Request: what the client had got without Prefer.
type Reply struct {
	Code   int // HTTP status
	Header http.Header
	Size   int64         // of the body in bytes
	Body   io.ReadCloser // the owner of the Reply closes it
}

// RequestStatus is an asynchronous request as it is now.
type RequestStatus struct {
	ID      string       `json:"id"`
	Model   string       `json:"model"`
	Version string       `json:"version,omitempty"` // as in the path of the request
	State   RequestState `json:"state"`
	Created time.Time    `json:"created"`
	Started time.Time    `json:"started,omitzero"` // of the last attempt
	Ended   time.Time    `json:"ended,omitzero"`
	Expires time.Time    `json:"expires,omitzero"` // the result is removed then
	// Attempts counts the executions. There is more than one after a crash, or when the model was not ready.
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason,omitempty"` // why the last attempt is repeated, or why there is no result
	// Code is the HTTP status of the result, 0 while there is none.
	Code int `json:"status,omitempty"`
	// ErrorReason says why a request failed, for programs, and Retryable whether it may succeed when it is sent again: docs/errors.md.
	ErrorReason string `json:"error_reason,omitempty"`
	Retryable   bool   `json:"retryable,omitempty"`

	StatusURL string    `json:"status_url"` // a path of this server, as ResultURL
	ResultURL string    `json:"result_url"`
	Callback  *Delivery `json:"callback,omitempty"` // nil without a callback
}

// Delivery is the state of a callback.
type Delivery struct {
	URL string `json:"url"`
	// State is waiting (for the end of the request), pending, delivered or failed.
	State    string    `json:"state"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error,omitempty"`       // of the last attempt that failed
	Next     time.Time `json:"next_attempt,omitzero"` // while it is pending
	Ended    time.Time `json:"delivered,omitzero"`    // when the receiver accepted it
}

// The states of a Delivery.
const (
	DeliveryWaiting = "waiting"
	DeliveryPending = "pending"
	Delivered       = "delivered"
	DeliveryFailed  = "failed"
)

// RequestPath returns the path of an asynchronous request, below which "/result" is its result.
func RequestPath(id string) string { return "/v2/jobs/requests/" + id }

// Requests executes single inference requests asynchronously. Implementations must be safe for concurrent use. Errors have
// the code NotFound for an unknown request or one whose result was removed, InvalidArg for a callback that is not allowed,
// Unsupported for a Temporal server without standalone activities, and Unavailable while Temporal or the storage of requests
// cannot be used.
type Requests interface {
	// Submit stores a request and returns when it is durable. The Request is not used afterwards.
	Submit(ctx context.Context, req *Request) (*RequestStatus, error)
	Show(ctx context.Context, id string) (*RequestStatus, error)
	// Wait returns the status when the request has ended, at the latest after a time.
	Wait(ctx context.Context, id string, most time.Duration) (*RequestStatus, error)
	// Result returns the response to a request that has ended. Before, and after a cancellation, it returns the status with a
	// nil Reply.
	Result(ctx context.Context, id string) (*Reply, *RequestStatus, error)
	// Cancel ends a request that has not ended. It removes the result of one that has, which is unknown then.
	Cancel(ctx context.Context, id string) (*RequestStatus, error)
}
