// Package status holds the coded errors every layer speaks.
//
// The code of an error says what a caller may do about the failure; the text says what failed.
// Codes are those of Triton's server API, and both front ends map them to the HTTP and gRPC
// statuses that its clients expect. Programs must act on codes, never on texts. For example,
// Unavailable may be retried, InvalidArg may not.
package status

import (
	"context"
	"errors"
	"fmt"
	"time"
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
	numCodes
)

var codeNames = [numCodes]string{
	Unknown:       "Unknown",
	Internal:      "Internal",
	NotFound:      "Not found",
	InvalidArg:    "Invalid argument",
	Unavailable:   "Unavailable",
	Unsupported:   "Unsupported",
	AlreadyExists: "Already exists",
	Cancelled:     "Cancelled",
}

// String returns the name Triton prints for the code.
func (c Code) String() string {
	if c < numCodes {
		return codeNames[c]
	}
	return codeNames[Unknown]
}

// Error is a coded failure. Clients read its text as it is.
type Error struct {
	Code Code
	Msg  string
	// Err is the cause, when there is one worth unwrapping to.
	Err error
	// RetryAfter is the delay after which the same request may succeed; 0 when unknown.
	RetryAfter time.Duration
}

// Error returns the text a client reads.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error of the given code. A %w verb keeps its operand as the cause.
func Errorf(c Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Msg: err.Error(), Err: errors.Unwrap(err)}
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

// Prefixf returns err with a text put before its own and its code kept.
func Prefixf(err error, format string, args ...any) error {
	return &Error{Code: CodeOf(err), Msg: fmt.Sprintf(format, args...) + err.Error(), Err: err, RetryAfter: RetryAfter(err)}
}

// RetryAfter returns the delay after which a request that failed with err may succeed; 0 when
// unknown.
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
var ErrDeadline error = &Error{Code: Cancelled, Msg: "request deadline expired before the request was executed"}
