// Package status holds the coded errors every layer speaks.
//
// The code of an error says what a caller may do about the failure; the text says what failed. Codes are those of
// Triton's server API, and both front ends map them to the HTTP and gRPC statuses that its clients expect. Programs
// must act on codes, never on texts. For example, Unavailable may be retried, InvalidArg may not.
package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Code classifies a failure.
type Code uint8

// The codes, in the order of Triton's server API.
const (
	Unknown Code = iota
	Internal
	NotFound
	InvalidArg
	Unavailable
	Unsupported
	AlreadyExists
	Cancelled
	ResourceExhausted // not of Triton: a client is over its share
	numCodes
)

// forms are the names and the statuses of the codes.
var forms = [numCodes]struct {
	name   string
	http   int
	grpc   codes.Code
	reason Reason // of errors without one
}{
	Unknown:       {"Unknown", http.StatusBadRequest, codes.Unknown, "UNKNOWN"},
	Internal:      {"Internal", http.StatusInternalServerError, codes.Internal, "INTERNAL"},
	NotFound:      {"Not found", http.StatusNotFound, codes.NotFound, "NOT_FOUND"},
	InvalidArg:    {"Invalid argument", http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT"},
	Unavailable:   {"Unavailable", http.StatusServiceUnavailable, codes.Unavailable, "UNAVAILABLE"},
	Unsupported:   {"Unsupported", http.StatusNotImplemented, codes.Unimplemented, "UNSUPPORTED"},
	AlreadyExists: {"Already exists", http.StatusBadRequest, codes.AlreadyExists, "ALREADY_EXISTS"},
	Cancelled:     {"Cancelled", http.StatusBadRequest, codes.Canceled, "CANCELLED"},

	ResourceExhausted: {"Resource exhausted", http.StatusTooManyRequests, codes.ResourceExhausted, "RESOURCE_EXHAUSTED"},
}

// String returns the name Triton prints for the code.
func (c Code) String() string {
	if c < numCodes {
		return forms[c].name
	}
	return forms[Unknown].name
}

// HTTP returns the HTTP status for errors of code c, for example 400 for InvalidArg.
func (c Code) HTTP() int {
	if c < numCodes {
		return forms[c].http
	}
	return http.StatusInternalServerError
}

// GRPC returns the gRPC status code for errors of code c.
func (c Code) GRPC() codes.Code {
	if c < numCodes {
		return forms[c].grpc
	}
	return codes.Internal
}

// Error is a coded failure. Clients read its text as it is.
type Error struct {
	Code       Code
	Msg        string
	Err        error         // the cause, when there is one worth unwrapping to
	RetryAfter time.Duration // the delay after which the same request may succeed; 0 when unknown
	Reason     Reason        // why it failed, for programs; empty for the reason of the code
	Step       string        // the step or the model that is the cause; empty if it is none, or not known
	Finish     time.Duration // the predicted time from the request's arrival to its response; 0 when unknown
}

// Error returns the text a client reads.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error of the given code. A %w verb keeps its operand as the cause, and also the cause's reason, step and times if the codes
// are equal: an error of another code, for example InvalidArg because of Unavailable, has none.
func Errorf(c Code, format string, args ...any) error { return errorf(c, format, args...) }

func errorf(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: c, Msg: err.Error(), Err: errors.Unwrap(err)}
	if _, several := err.(interface{ Unwrap() []error }); several {
		e.Err = err
	}
	if cause, ok := errors.AsType[*Error](err); ok && cause.Code == c {
		e.inherit(cause)
	}
	return e
}

// CodeOf returns the code of the first coded error in err's chain. A bare context
// cancellation is Cancelled; anything uncoded is Internal.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Cancelled
	default:
		return Internal
	}
}

// Prefixf returns err with a text put before its own, and everything else kept.
func Prefixf(err error, format string, args ...any) error {
	e := &Error{Code: CodeOf(err), Msg: fmt.Sprintf(format, args...) + err.Error(), Err: err}
	e.inherit(err)
	return e
}

// RetryAfter returns the delay after which a request that failed with err may succeed; 0 when unknown.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// Text returns the text that a client reads. A cancelled request has none, as in Triton.
func Text(err error) string {
	var e *Error
	if !errors.As(err, &e) && CodeOf(err) == Cancelled {
		return ""
	}
	return err.Error()
}

// ErrCancelled ends a cancelled request. Triton sends it without a text.
var ErrCancelled error = &Error{Code: Cancelled}

// ErrDeadline ends a request whose deadline passed before it was executed.
var ErrDeadline error = &Error{Code: Cancelled, Reason: DeadlineExpired, Msg: "request deadline expired before the request was executed"}

// MissesDeadline reports whether err says that a deadline has passed, or would before the response.
func MissesDeadline(err error) bool {
	var e Error
	e.inherit(err)
	return e.Reason == DeadlineUnreachable || e.Reason == DeadlineExpired
}

// ErrLate is ErrDeadline for a deadline that is none of the client's call, such as that of the header tutti-timeout-ms or of an ensemble: the
// client still waits, and learns that the server was too slow.
var ErrLate error = &Error{Code: Unavailable, Reason: DeadlineUnreachable, Msg: "request deadline expired before the request was executed"}

// Line returns a text on one line, for logs and tables: its lines are trimmed and joined
// by "; ", or by a space behind a colon.
//
//	"ValueError: no table\n\nAt:\n  model.py(4): initialize\n" -> "ValueError: no table; At: model.py(4): initialize"
func Line(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	joined := ""
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case joined == "":
			joined = line
		case strings.HasSuffix(joined, ":"):
			joined += " " + line
		default:
			joined += "; " + line
		}
	}
	return joined
}
