package grpcapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// full refuses every request.
type full struct{}

// Submit refuses the request.
func (full) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	req.Release()
	sink.Close(&status.Error{Code: status.Unavailable, Msg: "Exceeds maximum queue size", RetryAfter: 1500 * time.Millisecond})
}

// refuses rejects every request with an error.
type refuses struct{ error }

// Submit rejects the request.
func (f refuses) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	req.Release()
	sink.Close(f.error)
}

// TestErrorDetails checks the details of errors, and that the code and the text stay.
func TestErrorDetails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   error
		code  codes.Code
		text  string
		info  string
		after time.Duration
	}{
		{
			&status.Error{Code: status.Unavailable, Msg: "full", Reason: status.QueueFull, Step: "detect", RetryAfter: 120 * time.Millisecond, Finish: 340 * time.Millisecond}, codes.Unavailable, "full",
			"QUEUE_FULL tutti map[predicted_finish_ms:340 retryable:true step:detect]", 120 * time.Millisecond,
		},
		{status.Reasonf(status.QueueTimeout, "late"), codes.Unavailable, "late", "QUEUE_TIMEOUT tutti map[retryable:true]", 0},
		{&status.Error{Code: status.ResourceExhausted, Msg: "many", Reason: status.OverShare, RetryAfter: time.Second}, codes.ResourceExhausted, "many", "OVER_SHARE tutti map[retryable:true]", time.Second},
		{status.At("m", status.ErrDeadline), codes.DeadlineExceeded, "Deadline Exceeded", "DEADLINE_EXPIRED tutti map[retryable:false step:m]", 0},
		{status.Errorf(status.InvalidArg, "wrong"), codes.InvalidArgument, "wrong", "INVALID_ARGUMENT tutti map[retryable:false]", 0},
		{status.Errorf(status.Internal, "%s", strings.Repeat("x", 3000)), codes.Internal, strings.Repeat("x", 3000), "", 0},
	} {
		c, _, _ := serveWith(t, grpcapi.Settings{Infer: refuses{tt.err}, Catalog: servertest.NewEcho()})
		_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: "echo"})
		wantError(t, err, tt.code, tt.text)
		info, after := "", time.Duration(0)
		for _, d := range grpcstatus.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				info = fmt.Sprint(d.GetReason(), " ", d.GetDomain(), " ", d.GetMetadata())
			case *errdetails.RetryInfo:
				after = d.GetRetryDelay().AsDuration()
			}
		}
		if info != tt.info || after != tt.after {
			t.Errorf("%.20s: got %s, %v, want %s, %v", tt.text, info, after, tt.info, tt.after)
		}
	}
}

// TestStreamErrorParams checks that a streamed response says what the error says besides its text.
func TestStreamErrorParams(t *testing.T) {
	t.Parallel()
	e := &status.Error{Code: status.Unavailable, Msg: "full", Reason: status.QueueFull, Step: "detect", RetryAfter: 120 * time.Millisecond, Finish: 340 * time.Millisecond}
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: refuses{e}, Catalog: servertest.NewEcho()})
	s, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Send(&inference.ModelInferRequest{ModelName: "echo"}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, p := range m.GetInferResponse().GetParameters() {
		got[key] = fmt.Sprint(p.GetParameterChoice())
	}
	want := map[string]string{
		"tutti-error-reason": "&{QUEUE_FULL}", "tutti-error-retryable": "&{true}", "tutti-retry-after-ms": "&{120}", "tutti-error-step": "&{detect}",
		"tutti-predicted-finish-ms": "&{340}", "triton_final_response": "&{true}",
	}
	if diff := cmp.Diff(want, got); diff != "" || m.GetErrorMessage() != "full" {
		t.Errorf("text %q, parameters (-want +got):\n%s", m.GetErrorMessage(), diff)
	}
}

// TestRetryAfter checks that the trailer has the retry delay in whole seconds.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: full{}, Catalog: servertest.NewEcho()})
	var trailer metadata.MD
	_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: "echo"}, grpc.Trailer(&trailer))
	wantError(t, err, codes.Unavailable, "Exceeds maximum queue size")
	if got := trailer.Get("retry-after"); len(got) != 1 || got[0] != "2" {
		t.Errorf("retry-after is %q, want 2", got)
	}
}
