package status

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Reason says why a request failed, for programs. Clients act on it, so a reason never changes its name or its meaning. An error
// without one has the reason of its code, for example INVALID_ARGUMENT.
type Reason string

// Reasons of overload: the server has no room now.
const (
	// QueueFull says that the queue of a model is at its max_queue_size.
	QueueFull Reason = "QUEUE_FULL"
	// QueueTimeout says that the request waited in a queue for longer than its timeout.
	QueueTimeout Reason = "QUEUE_TIMEOUT"
	// DeadlineUnreachable says that the response is expected after a deadline of the server, or that this deadline has passed in a queue.
	DeadlineUnreachable Reason = "DEADLINE_UNREACHABLE"
	// OverShare says that the client has more work in the server than its share, and others wait.
	OverShare Reason = "OVER_SHARE"
	// BytesInFlight says that the tensors of other requests use a limit in bytes.
	BytesInFlight Reason = "BYTES_IN_FLIGHT"
	// MemoryLimit says that the memory of the server or of a device has no room.
	MemoryLimit Reason = "MEMORY_LIMIT"
	// LimitReached says that as many streams, regions or captures are open as may be.
	LimitReached Reason = "LIMIT_REACHED"
	// DiskFull says that a disk which the request needs is full.
	DiskFull Reason = "DISK_FULL"
)

// Reasons of a server or a model that cannot serve now.
const (
	// Draining says that the server is stopping and accepts no new requests.
	Draining Reason = "SERVER_DRAINING"
	// ServerNotReady says that the server has not loaded its models yet, or cannot read its repository.
	ServerNotReady Reason = "SERVER_NOT_READY"
	// ModelNotReady says that the model is known and not loaded now.
	ModelNotReady Reason = "MODEL_NOT_READY"
	// InstanceLost says that the process or the device that executed the request was lost.
	InstanceLost Reason = "INSTANCE_LOST"
	// CircuitOpen says that the circuit breaker of a step is open.
	CircuitOpen Reason = "CIRCUIT_OPEN"
	// StepTimeout says that a step took longer than its timeout.
	StepTimeout Reason = "STEP_TIMEOUT"
	// RemoteUnavailable says that the server of a remote model cannot be reached or does not respond.
	RemoteUnavailable Reason = "REMOTE_UNAVAILABLE"
	// StorageUnavailable says that Temporal, a bucket or a folder that the request needs cannot be used.
	StorageUnavailable Reason = "STORAGE_UNAVAILABLE"
)

// Reasons for which the same request fails again.
const (
	// DeadlineExpired says that the deadline of the request passed before its response.
	DeadlineExpired Reason = "DEADLINE_EXPIRED"
	// RequestCrashes says that the same inputs have ended the process of a model more than once.
	RequestCrashes Reason = "REQUEST_CRASHES_MODEL"
	// StepFailed says that the execution of a model failed.
	StepFailed Reason = "STEP_FAILED"
	// SequenceEnded says that the sequence of the request has ended, or lost its state.
	SequenceEnded Reason = "SEQUENCE_ENDED"
	// TooLarge says that the request alone exceeds a limit in bytes.
	TooLarge Reason = "REQUEST_TOO_LARGE"
	// RuntimeMissing says that the server has not the library, interpreter or device that the model needs.
	RuntimeMissing Reason = "RUNTIME_MISSING"
	// NotEnabled says that the server was started without what the request needs.
	NotEnabled Reason = "NOT_ENABLED"
	// Unauthenticated says that the request has no valid credentials.
	Unauthenticated Reason = "UNAUTHENTICATED"
	// PermissionDenied says that the client may not do this.
	PermissionDenied Reason = "PERMISSION_DENIED"
)

// reasons are the code and the meaning for a retry of each reason.
var reasons = map[Reason]struct {
	code  Code
	retry bool
}{
	QueueFull:           {Unavailable, true},
	QueueTimeout:        {Unavailable, true},
	DeadlineUnreachable: {Unavailable, true},
	OverShare:           {ResourceExhausted, true},
	BytesInFlight:       {Unavailable, true},
	MemoryLimit:         {Unavailable, true},
	LimitReached:        {Unavailable, true},
	DiskFull:            {Unavailable, true},
	Draining:            {Unavailable, true},
	ServerNotReady:      {Unavailable, true},
	ModelNotReady:       {Unavailable, true},
	InstanceLost:        {Unavailable, true},
	CircuitOpen:         {Unavailable, true},
	StepTimeout:         {Unavailable, true},
	RemoteUnavailable:   {Unavailable, true},
	StorageUnavailable:  {Unavailable, true},
	DeadlineExpired:     {Cancelled, false},
	RequestCrashes:      {Unavailable, false},
	StepFailed:          {Internal, false},
	SequenceEnded:       {Unavailable, false},
	TooLarge:            {InvalidArg, false},
	RuntimeMissing:      {Unavailable, false},
	NotEnabled:          {Unavailable, false},
	Unauthenticated:     {Unavailable, false},
	PermissionDenied:    {Unavailable, false},
}

// Reasons returns all reasons in order: the explicit ones, and those of the codes.
func Reasons() []Reason {
	var list []Reason
	for r := range reasons {
		list = append(list, r)
	}
	for c := range numCodes {
		list = append(list, c.reason())
	}
	slices.Sort(list)
	return list
}

// Code returns the code of errors with reason r. An unknown reason has Internal.
func (r Reason) Code() Code {
	if of, ok := reasons[r]; ok {
		return of.code
	}
	for c := range numCodes {
		if c.reason() == r {
			return c
		}
	}
	return Internal
}

// maxReason bounds the length of a reason, as google.rpc.ErrorInfo does.
const maxReason = 63

// ParseReason returns the reason that another process or server has sent, and none for a text that is no reason: of other characters than
// capital letters, digits and '_', or of more than 63.
func ParseReason(s string) Reason {
	if len(s) > maxReason {
		return ""
	}
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return ""
		}
	}
	return Reason(s)
}

// known reports whether r is one of Reasons.
func (r Reason) known() bool {
	_, ok := reasons[r]
	return ok || r == r.Code().reason()
}

// Retryable reports whether a request that failed for r may succeed when it is sent again as it is. An unknown reason is not retryable.
func (r Reason) Retryable() bool {
	if of, ok := reasons[r]; ok {
		return of.retry
	}
	return r == r.Code().reason() && r.Code().retryable()
}

// reason returns the reason of errors of code c that have no other.
func (c Code) reason() Reason {
	if c < numCodes {
		return forms[c].reason
	}
	return forms[Unknown].reason
}

// retryable reports whether a request that failed with c may succeed when it is sent again.
func (c Code) retryable() bool { return c == Unavailable || c == ResourceExhausted }

// Reasonf is Errorf with a reason, and the code of that reason.
//
//	status.Reasonf(status.ModelNotReady, "model '%s' is being loaded", name)
func Reasonf(r Reason, format string, args ...any) error {
	e := errorf(r.Code(), format, args...)
	e.Reason = r
	return e
}

// With returns err with a reason in place of its own. Its code, text and cause stay.
func With(r Reason, err error) error {
	e := wrap(err)
	e.Reason = r
	return e
}

// At returns err with the step, or the model, that is its cause. An error that has a step already keeps it, unless that begins with '/',
// as that of another server: At("b", an error with "/detect") has the step "b/detect". A failed execution without a reason gets
// StepFailed.
func At(step string, err error) error {
	e := wrap(err)
	switch {
	case e.Step == "":
		e.Step = step
	case strings.HasPrefix(e.Step, "/"):
		e.Step = step + e.Step
	}
	if e.Reason == "" && e.Code == Internal {
		e.Reason = StepFailed
	}
	return e
}

// wrap returns a copy of err's coded error, with err as its cause and err's own text.
func wrap(err error) *Error {
	e := &Error{Code: CodeOf(err), Msg: Text(err), Err: err}
	e.inherit(err)
	return e
}

// inherit takes over what the first coded error in err's chain says besides its code and text.
func (e *Error) inherit(err error) {
	if cause, ok := errors.AsType[*Error](err); ok {
		e.RetryAfter, e.Reason, e.Step, e.Finish = cause.RetryAfter, cause.Reason, cause.Step, cause.Finish
	}
}

// The HTTP headers that say what an error is, as net/http has them. Streamed gRPC responses have parameters of the same names in lower case.
const (
	ReasonHeader     = "Tutti-Error-Reason"
	RetryableHeader  = "Tutti-Error-Retryable"
	RetryAfterHeader = "Tutti-Retry-After-Ms"
)

// The parameters of streamed gRPC responses that say what an error is.
const (
	ReasonParam     = "tutti-error-reason"
	RetryableParam  = "tutti-error-retryable"
	RetryAfterParam = "tutti-retry-after-ms"
	StepParam       = "tutti-error-step"
	FinishParam     = "tutti-predicted-finish-ms"
)

// Details are what an error says to programs. Both front ends send all of it.
type Details struct {
	Reason Reason // never empty
	// Own reports that the error has more to say than its code: a reason of its own, a step, a finish, or that it is retryable.
	Own bool
	// Retryable reports whether the same request may succeed when it is sent again, after RetryAfter if that is not 0.
	Retryable  bool
	RetryAfter time.Duration
	// Step is the step, or the model, that is the cause; empty if it is none, or not known.
	Step string
	// Finish is the predicted time from the arrival of the request to its response; 0 when unknown.
	Finish time.Duration
}

// DetailsOf returns what err says. A reason decides whether the request is retryable; without one, the code does, or that the error has a
// time to retry.
func DetailsOf(err error) Details {
	code := CodeOf(err)
	var e Error
	e.inherit(err)
	d := Details{Reason: e.Reason, RetryAfter: e.RetryAfter, Step: strings.TrimPrefix(e.Step, "/"), Finish: e.Finish}
	if d.Retryable = e.Reason.Retryable(); !e.Reason.known() {
		d.Retryable = code.retryable() || e.RetryAfter > 0
	}
	if !d.Retryable {
		d.RetryAfter = 0
	}
	d.Own = e.Reason != "" || e.Step != "" || e.Finish > 0 || d.Retryable
	if d.Reason == "" {
		d.Reason = code.reason()
	}
	return d
}

// ReasonOf returns why err happened. It is never empty.
func ReasonOf(err error) Reason { return DetailsOf(err).Reason }

// Retryable reports whether a request that failed with err may succeed when it is sent again as it is.
func Retryable(err error) bool { return DetailsOf(err).Retryable }

// Milliseconds returns a delay in whole milliseconds, rounded up: a client that waits for it waits long enough.
func Milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
