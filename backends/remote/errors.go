package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// codeOf has the code of each gRPC code whose meaning we have.
var codeOf = map[codes.Code]status.Code{
	codes.InvalidArgument: status.InvalidArg, codes.OutOfRange: status.InvalidArg, codes.FailedPrecondition: status.InvalidArg,
	codes.NotFound: status.NotFound, codes.AlreadyExists: status.AlreadyExists, codes.Unimplemented: status.Unsupported,
	codes.Unavailable: status.Unavailable, codes.ResourceExhausted: status.Unavailable, codes.Aborted: status.Unavailable,
	codes.DeadlineExceeded: status.Unavailable, codes.Canceled: status.Unavailable,
	codes.Unknown: status.Unknown,
}

// call is what is known of a call besides its error.
type call struct {
	peer    peer.Peer
	trailer metadata.MD
}

// where names the far model in errors, with the server's address if it is known and the endpoint has several. c may be nil.
func (s *settings) where(c *call) string {
	text := "model '" + s.model + "' at '" + s.endpoint + "'"
	if c != nil && c.peer.Addr != nil && !strings.Contains(s.endpoint, c.peer.Addr.String()) {
		text += " (" + c.peer.Addr.String() + ")"
	} else if c != nil && c.peer.Addr != nil && s.addresses() != nil {
		text += " (" + c.peer.Addr.String() + ")"
	}
	return text
}

// callError converts the error of a call, with the context of that call. c may be nil.
func (s *settings) callError(ctx context.Context, err error, c *call) error {
	if _, ok := errors.AsType[*status.Error](err); ok {
		return err // our own
	}
	st, _ := grpcstatus.FromError(err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return status.ErrCancelled
	case ctx.Err() != nil, st.Code() == codes.DeadlineExceeded && passed(ctx):
		return status.Errorf(status.Cancelled, "%s did not respond before the deadline of the request: %w", s.where(c), context.DeadlineExceeded)
	case st.Code() == codes.DeadlineExceeded && s.timeout > 0:
		return status.Reasonf(status.RemoteUnavailable, "%s did not respond within %s (parameter 'timeout')", s.where(c), s.timeout)
	}
	if st.Code() == codes.ResourceExhausted {
		if large := s.tooLarge(st.Message(), c); large != nil {
			return large
		}
	}
	code, ok := codeOf[st.Code()]
	if !ok {
		code = status.Internal
	}
	text := st.Message()
	if text == "" {
		text = st.Code().String()
	}
	if st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied {
		text = "refused the credentials of this server: " + text
	}
	e := &status.Error{Code: code, Msg: s.where(c) + ": " + text, Err: err, RetryAfter: c.retryAfter()}
	s.explain(e, st)
	return e
}

// explain sets what the far server says of its error in the details of its status. A step there has a '/' in front, see status.At. One that
// is not there, or the far model itself, is left to the step here.
func (s *settings) explain(e *status.Error, st *grpcstatus.Status) {
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			if d.GetDomain() != "tutti" {
				continue // another vocabulary
			}
			e.Reason = status.ParseReason(d.GetReason())
			if step := d.GetMetadata()["step"]; step != "" && step != s.model {
				e.Step = "/" + step
			}
			if ms, err := strconv.ParseUint(d.GetMetadata()["predicted_finish_ms"], 10, 32); err == nil {
				e.Finish = time.Duration(ms) * time.Millisecond //nolint:gosec // 32 bits
			}
		}
	}
	if e.Reason == "" && e.Code == status.Unavailable {
		e.Reason = status.RemoteUnavailable // of a server that says no more, or of the connection to it
	}
}

// errLongResponse is wrapped by the error of a response that exceeds max_message_bytes. That of one request alone may be short enough.
var errLongResponse = errors.New("too large")

// tooLarge returns the error of a message that exceeds a limit, here or at the far server, or nil for another text of grpc.
func (s *settings) tooLarge(text string, c *call) error {
	ours := strings.Contains(text, fmt.Sprintf(" vs. %d)", s.maxMessage)) || strings.HasSuffix(text, fmt.Sprintf(" max %d", s.maxMessage))
	switch {
	case !strings.Contains(text, "larger than max"):
		return nil
	case !ours:
		return status.Errorf(status.InvalidArg, "%s refuses a message, which is %w: %s", s.where(c), infer.ErrTooLarge, text)
	case !strings.Contains(text, "trying to send"):
		return status.Errorf(status.Internal, "unexpected response of %s: it is %w, expected at most %d bytes (parameter 'max_message_bytes'): %s", s.where(c), errLongResponse, s.maxMessage, text)
	}
	return status.Errorf(status.InvalidArg, "the request for %s is %w, expected at most %d bytes (parameter 'max_message_bytes'): %s", s.where(c), infer.ErrTooLarge, s.maxMessage, text)
}

// passed reports whether the deadline of ctx has passed or is about to: grpc's timer may fire before the context's.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) < time.Millisecond
}

// retryAfter returns the time of the trailer retry-after.
func (c *call) retryAfter() time.Duration {
	if c == nil {
		return 0
	}
	if v := c.trailer.Get("retry-after"); len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil && n > 0 && n < 1<<20 {
			return time.Duration(n) * time.Second
		}
	}
	return 0
}
