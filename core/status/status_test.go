package status_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tutti-server/tutti/core/status"
)

func TestWireTables(t *testing.T) {
	t.Parallel()
	tests := []struct {
		code status.Code
		name string
		http int
		grpc codes.Code
	}{
		{status.Unknown, "Unknown", http.StatusBadRequest, codes.Unknown},
		{status.Internal, "Internal", http.StatusInternalServerError, codes.Internal},
		{status.NotFound, "Not found", http.StatusNotFound, codes.NotFound},
		{status.InvalidArg, "Invalid argument", http.StatusBadRequest, codes.InvalidArgument},
		{status.Unavailable, "Unavailable", http.StatusServiceUnavailable, codes.Unavailable},
		{status.Unsupported, "Unsupported", http.StatusNotImplemented, codes.Unimplemented},
		{status.AlreadyExists, "Already exists", http.StatusBadRequest, codes.AlreadyExists},
		{status.Cancelled, "Cancelled", http.StatusBadRequest, codes.Canceled},
		{status.Code(200), "Unknown", http.StatusInternalServerError, codes.Internal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.code.String(); got != tt.name {
				t.Errorf("String() = %q, want %q", got, tt.name)
			}
			if got := tt.code.HTTP(); got != tt.http {
				t.Errorf("HTTP() = %d, want %d", got, tt.http)
			}
			if got := tt.code.GRPC(); got != tt.grpc {
				t.Errorf("GRPC() = %v, want %v", got, tt.grpc)
			}
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"gone":    status.Errorf(status.NotFound, "gone"),
		"late":    status.Errorf(status.Cancelled, "late"),
		"uncoded": errors.New("uncoded"),
		"":        fmt.Errorf("while waiting: %w", context.Canceled),
	} {
		if got := status.Text(err); got != want {
			t.Errorf("text of %v is %q, want %q", err, got, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	coded := status.Errorf(status.NotFound, "no model '%s': %w", "m", io.EOF)
	tests := []struct {
		name string
		err  error
		want status.Code
	}{
		{"coded", coded, status.NotFound},
		{"wrapped", fmt.Errorf("loading: %w", coded), status.NotFound},
		{"prefixed", status.Prefixf(coded, "in ensemble '%s', ", "e"), status.NotFound},
		{"cancelled context", context.Canceled, status.Cancelled},
		{"expired context", context.DeadlineExceeded, status.Cancelled},
		{"plain", io.EOF, status.Internal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := status.CodeOf(tt.err); got != tt.want {
				t.Errorf("CodeOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
	if !errors.Is(coded, io.EOF) {
		t.Error("the cause of a coded error is lost")
	}
	if got, want := status.Prefixf(coded, "in ensemble '%s', ", "e").Error(), "in ensemble 'e', no model 'm': EOF"; got != want {
		t.Errorf("Prefixf text = %q, want %q", got, want)
	}
}

// TestErrorfKeeps checks which errors have the causes of their %w verbs, and their time to retry.
func TestErrorfKeeps(t *testing.T) {
	t.Parallel()
	full := &status.Error{Code: status.Unavailable, Msg: "full", Err: io.ErrShortWrite, RetryAfter: 30 * time.Second}
	for _, tt := range []struct {
		name string
		err  error
		want time.Duration
	}{
		{"the same code", status.Errorf(status.Unavailable, "collecting: %w", full), full.RetryAfter},
		{"below an uncoded error", status.Errorf(status.Unavailable, "collecting: %w", fmt.Errorf("row 3: %w", full)), full.RetryAfter},
		{"two causes", status.Errorf(status.Unavailable, "%w: %w", io.EOF, full), full.RetryAfter},
		{"twice", status.Errorf(status.Unavailable, "a: %w", status.Errorf(status.Unavailable, "b: %w", full)), full.RetryAfter},
		{"prefixed", status.Prefixf(full, "a: "), full.RetryAfter},
		{"another code", status.Errorf(status.InvalidArg, "unusable: %w", full), 0},
		{"another code between", status.Errorf(status.Unavailable, "a: %w", status.Errorf(status.Internal, "b: %w", full)), 0},
		{"no time", status.Errorf(status.Unavailable, "a: %w", io.ErrShortWrite), 0},
	} {
		if got := status.RetryAfter(tt.err); got != tt.want || !errors.Is(tt.err, io.ErrShortWrite) {
			t.Errorf("%s: retry after %v, want %v; the cause is there: %v", tt.name, got, tt.want, errors.Is(tt.err, io.ErrShortWrite))
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                 "",
		" as it is ":       " as it is ",
		"one\ntwo":         "one; two",
		"\n one \n\n\ntwo": "one; two",
		"ValueError: no table\n\nAt:\n  model.py(4): initialize\n": "ValueError: no table; At: model.py(4): initialize",
	}
	for text, want := range tests {
		if got := status.Line(text); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
}
