package httpapi_test

import (
	"context"
	"net/http"
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
