package client

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TestErrorDetails checks that an error is the same over HTTP and gRPC, and that the server's word decides whether a request is sent again.
func TestErrorDetails(t *testing.T) {
	t.Parallel()
	want := Error{Text: "full", Reason: "QUEUE_FULL", Retryable: true, RetryAfter: 120 * time.Millisecond, Step: "detect", Finish: 340 * time.Millisecond}
	header := http.Header{"Retry-After": {"1"}, "Tutti-Error-Reason": {"QUEUE_FULL"}, "Tutti-Error-Retryable": {"true"}, "Tutti-Retry-After-Ms": {"120"}}
	const body = `{"error":"full","reason":"QUEUE_FULL","retryable":true,"retry_after_ms":120,"step":"detect","predicted_finish_ms":340}`
	overHTTP := newError(&http.Response{Status: "503 Service Unavailable", Header: header}, []byte(body))
	s, err := status.New(codes.Unavailable, "full").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUEUE_FULL", Domain: "tutti", Metadata: map[string]string{"retryable": "true", "step": "detect", "predicted_finish_ms": "340"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(120 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	overGRPC, ok := errors.AsType[*Error](refusal(s.Err(), nil))
	if !ok {
		t.Fatal("no *Error")
	}
	for of, got := range map[string]*Error{"503 Service Unavailable": overHTTP, "Unavailable": overGRPC} {
		want.Status = of
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
	}
	on := &Retry{Attempts: 3}
	final := newError(&http.Response{Status: "503 Service Unavailable", Header: http.Header{"Retry-After": {"1"}}}, []byte(`{"error":"x","reason":"REQUEST_CRASHES_MODEL","retryable":false}`))
	foreign := newError(&http.Response{Status: "429 Too Many Requests", Header: http.Header{"Retry-After": {"1"}}}, []byte(`{"error":"x"}`))
	if w := [3]time.Duration{on.wait(overHTTP, 1), on.wait(final, 1), on.wait(foreign, 1)}; w != [3]time.Duration{120 * time.Millisecond, 0, time.Second} {
		t.Errorf("the waits are %v", w)
	}
}
