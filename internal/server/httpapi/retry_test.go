package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// full rejects every request with a time to retry.
type full time.Duration

// Submit rejects the request.
func (f full) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	req.Release()
	sink.Close(&status.Error{Code: status.Unavailable, Msg: "Exceeds maximum queue size", RetryAfter: time.Duration(f)})
}

// refuses rejects every request with an error.
type refuses struct{ error }

// Submit rejects the request.
func (f refuses) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	req.Release()
	sink.Close(f.error)
}

// TestErrorMembers checks what errors say in bodies and headers, also as events, and to clients in Go.
//
// shows: http.errors
func TestErrorMembers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err           error
		code          int
		body          string
		reason, after string
	}{
		{
			&status.Error{Code: status.Unavailable, Msg: "full", Reason: status.QueueFull, Step: "detect", RetryAfter: 120 * time.Millisecond, Finish: 340 * time.Millisecond}, 503,
			`{"error":"full","reason":"QUEUE_FULL","retryable":true,"retry_after_ms":120,"step":"detect","predicted_finish_ms":340}`, "QUEUE_FULL", "120",
		},
		{status.Reasonf(status.QueueTimeout, "late"), 503, `{"error":"late","reason":"QUEUE_TIMEOUT","retryable":true}`, "QUEUE_TIMEOUT", ""},
		{&status.Error{Code: status.ResourceExhausted, Msg: "many", Reason: status.OverShare, RetryAfter: time.Second}, 429, `{"error":"many","reason":"OVER_SHARE","retryable":true,"retry_after_ms":1000}`, "OVER_SHARE", "1000"},
		{status.At("classify", status.Errorf(status.Internal, "it failed")), 500, `{"error":"it failed","reason":"STEP_FAILED","retryable":false,"step":"classify"}`, "STEP_FAILED", ""},
		{status.Errorf(status.InvalidArg, "wrong"), 400, `{"error":"wrong"}`, "INVALID_ARGUMENT", ""},
	} {
		s, _ := serve(t, func(set *httpapi.Settings) { set.Infer = refuses{tt.err} })
		for _, path := range []string{"infer", "generate", "generate_stream"} {
			body := input(`"shape":[1],"datatype":"INT32","data":[1]`)
			if path != "infer" {
				body = `{"IN":1}`
			}
			code, h, text := call(t, http.MethodPost, s.URL+"/v2/models/echo/"+path, []byte(body))
			if text = strings.TrimSuffix(strings.TrimPrefix(text, "data: "), "\n\n"); code != tt.code || text != tt.body {
				t.Errorf("%s: got %d, %s, want %d, %s", path, code, text, tt.code, tt.body)
			}
			if h.Get("tutti-error-reason") != tt.reason || h.Get("tutti-retry-after-ms") != tt.after {
				t.Errorf("%s: got the headers %v, want %s, %s", path, h, tt.reason, tt.after)
			}
		}
	}
}

// TestRetryAfter checks that Retry-After is in whole seconds, and absent when the time is unknown.
//
// shows: http.errors
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{0: "", time.Millisecond: "1", 1500 * time.Millisecond: "2", time.Minute: "60"} {
		s, _ := serve(t, func(set *httpapi.Settings) { set.Infer = full(after) })
		for _, path := range []string{"infer", "generate", "generate_stream"} {
			body := input(`"shape":[1],"datatype":"INT32","data":[1]`)
			if path != "infer" {
				body = `{"IN":1}`
			}
			code, header, text := call(t, http.MethodPost, s.URL+"/v2/models/echo/"+path, []byte(body))
			if code != http.StatusServiceUnavailable || header.Get("Retry-After") != want {
				t.Errorf("%s, %v: got %d, Retry-After %q, %s", path, after, code, header.Get("Retry-After"), text)
			}
		}
	}
}
