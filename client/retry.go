package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// Retry sends a refused request again after the time that the server's error says: Retry-After over HTTP, RetryInfo or a retry-after
// trailer over gRPC. Only those requests are sent again that the server calls retryable; of other servers, those with the status 503 or
// 429, UNAVAILABLE or RESOURCE_EXHAUSTED. An error without a time is returned at once, as is a lost connection.
//
// Sent again are Infer, unless the request belongs to a sequence, and what only reads: metadata, configurations, statistics, states. What
// changes the server (loads, regions, settings) and streams are not.
type Retry struct {
	// Attempts is the largest number of times that a request is sent, for example 3. Values below 2 never send again.
	Attempts int
	// MaxWait is the longest time to wait before a request is sent again: an error with a longer one is returned. 0 is a minute.
	MaxWait time.Duration

	_ struct{}
}

// defaultMaxWait is MaxWait if it is 0.
const defaultMaxWait = time.Minute

// do calls send until it succeeds, or its error is final. It returns the last error also when ctx ends, or would end, during a wait.
func (r *Retry) do(ctx context.Context, send func() error) error {
	for attempt := 1; ; attempt++ {
		err := send()
		wait := r.wait(err, attempt)
		if wait == 0 {
			return err
		}
		if at, ok := ctx.Deadline(); ok && time.Until(at) <= wait {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// wait returns the time to wait after an attempt, or 0 when its result is final.
func (r *Retry) wait(err error, attempt int) time.Duration {
	if r == nil || attempt >= r.Attempts {
		return 0
	}
	e, refused := errors.AsType[*Error](err)
	if !refused || !e.Retryable {
		return 0
	}
	most := r.MaxWait
	if most == 0 {
		most = defaultMaxWait
	}
	if e.RetryAfter > most {
		return 0
	}
	return e.RetryAfter
}

// retryable reports whether a status, of a server that says no more, means that the server has not executed the request, and may do so later.
func retryable(of string) bool {
	code, _, _ := strings.Cut(of, " ")
	return code == "503" || code == "429" || of == codes.Unavailable.String() || of == codes.ResourceExhausted.String()
}

// retryAfter parses the value of Retry-After: seconds, or a date. It returns 0 if there is none.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// intercept is an interceptor that converts errors to *Error, with their time, and sends requests again. A nil r only converts.
func (r *Retry) intercept(ctx context.Context, method string, req, resp any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	send := func() error {
		var trailer metadata.MD
		err := call(ctx, method, req, resp, c, append(slices.Clip(opts), grpc.Trailer(&trailer))...)
		return refusal(err, trailer)
	}
	if !repeatable(method, req) {
		return send()
	}
	return r.do(ctx, send)
}

// refusal converts the error of a call.
func refusal(err error, trailer metadata.MD) error {
	out, ok := errors.AsType[*Error](rpcError(err))
	if !ok {
		return err
	}
	if value := trailer.Get("retry-after"); len(value) > 0 && out.RetryAfter == 0 {
		out.RetryAfter = retryAfter(value[0])
	}
	return out
}

// explain sets what the details of a gRPC status say.
func (e *Error) explain(s *status.Status) {
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			m := d.GetMetadata()
			e.Reason, e.Step = d.GetReason(), m["step"]
			if again, err := strconv.ParseBool(m["retryable"]); err == nil {
				e.Retryable = again
			}
			e.Finish = milliseconds(m["predicted_finish_ms"])
		}
	}
}

// milliseconds parses a time in milliseconds. It returns 0 if there is none.
func milliseconds(value string) time.Duration {
	n, _ := strconv.ParseUint(value, 10, 40)
	return time.Duration(n) * time.Millisecond //nolint:gosec // less than 35 years
}

// repeatable reports whether a call may be sent again.
func repeatable(method string, req any) bool {
	switch req := req.(type) {
	case *inference.ModelInferRequest:
		return req.GetParameters()["sequence_id"] == nil
	case *inference.TraceSettingRequest:
		return len(req.GetSettings()) == 0
	case *inference.LogSettingsRequest:
		return len(req.GetSettings()) == 0
	}
	for _, change := range []string{"Load", "Unload", "Register", "Unregister"} {
		if strings.HasSuffix(method, change) {
			return false
		}
	}
	return true
}
