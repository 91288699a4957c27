package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tutti-server/tutti/proto/inference"
)

// Stream is one gRPC stream of requests to any models, with their responses. A server executes the requests of a sequence in the order
// in which they are sent. One goroutine may send while another one receives.
//
//	s, err := c.OpenStream(ctx)
//	defer s.Close()
//	err = s.Send(&client.Request{Model: "sum", Sequence: &client.Sequence{ID: 7, Start: true}, Inputs: inputs})
//	resp, err := s.Recv()
type Stream struct {
	s      inference.GRPCInferenceService_ModelStreamInferClient
	cancel context.CancelFunc
}

// OpenStream opens a stream. It must be closed; the end of ctx ends it too.
func (c *GRPC) OpenStream(ctx context.Context) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.stub.ModelStreamInfer(ctx)
	if err != nil {
		cancel()
		return nil, rpcError(err)
	}
	return &Stream{s, cancel}, nil
}

// Send sends a request. The error io.EOF means that the stream has ended: Recv returns the reason.
func (s *Stream) Send(req *Request) error {
	m, err := message(req)
	if err != nil {
		return err
	}
	return rpcError(s.s.Send(m))
}

// Recv returns the next response. The error of a single request is an *Error together with a Response that has the request's ID; the
// stream goes on. Any other error, and io.EOF after the last response, ends the stream.
func (s *Stream) Recv() (*Response, error) {
	m, err := s.s.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil:
		return nil, rpcError(err)
	case m.GetErrorMessage() != "":
		r := m.GetInferResponse()
		return &Response{ID: r.GetId(), Model: r.GetModelName()}, streamError(m.GetErrorMessage(), r.GetParameters())
	}
	return decodeResponse(m.GetInferResponse())
}

// streamError returns the error of a streamed response, with what its parameters say.
func streamError(text string, params map[string]*inference.InferParameter) *Error {
	return &Error{
		Status: "error", Text: text,
		Reason: params["tutti-error-reason"].GetStringParam(), Retryable: params["tutti-error-retryable"].GetBoolParam(),
		RetryAfter: time.Duration(params["tutti-retry-after-ms"].GetInt64Param()) * time.Millisecond,
		Step:       params["tutti-error-step"].GetStringParam(),
		Finish:     time.Duration(params["tutti-predicted-finish-ms"].GetInt64Param()) * time.Millisecond,
	}
}

// CloseSend says that no more requests follow. Recv returns io.EOF after the last response.
func (s *Stream) CloseSend() error { return rpcError(s.s.CloseSend()) }

// Close ends the stream. Requests that are executed are cancelled.
func (s *Stream) Close() error {
	s.cancel()
	return nil
}

// Stream sends one request and calls each with every response in order.
func (c *GRPC) Stream(ctx context.Context, req *Request, each func(*Response) error) error {
	s, err := c.OpenStream(traced(ctx, req))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // ends a stream that each leaves early
	if err := errors.Join(s.Send(req), s.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err // only Recv knows the reason of the end
	}
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(resp)
		}
		if err != nil {
			return err
		}
	}
}
