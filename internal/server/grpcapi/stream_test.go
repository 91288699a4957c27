package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

type streamClient struct {
	inference.GRPCInferenceService_ModelStreamInferClient
	t *testing.T
}

// openStream opens a stream to the models of servertest.Streams.
func openStream(t *testing.T, ctx context.Context) (*streamClient, *servertest.Streams, *grpcapi.Server) { //nolint:revive // t first
	t.Helper()
	e := servertest.NewStreams()
	c, _, s := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e}) //nolint:contextcheck // the test ends it
	stream, err := c.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &streamClient{stream, t}, e, s
}

func (c *streamClient) send(texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		if err := c.Send(message(c.t, text)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// sendLate sends a request that may come after the server has ended the stream.
func (c *streamClient) sendLate(text string) {
	c.t.Helper()
	if err := c.Send(message(c.t, text)); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

const xAB = ` inputs { name: "X" datatype: "UINT8" shape: 2 } raw_input_contents: "ab"`

// got is a summary of a streamed response.
type got struct {
	ID, Err, Data string
	Final         bool
}

func (c *streamClient) recv() got {
	c.t.Helper()
	m, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	r := m.GetInferResponse()
	g := got{ID: r.GetId(), Err: m.GetErrorMessage(), Final: r.GetParameters()["triton_final_response"].GetBoolParam()}
	for _, b := range r.GetRawOutputContents() {
		g.Data += string(b)
	}
	if _, ok := r.GetParameters()["triton_final_response"]; !ok {
		c.t.Error("a response without triton_final_response")
	}
	return g
}

func (c *streamClient) want(list ...got) {
	c.t.Helper()
	for _, w := range list {
		if diff := cmp.Diff(w, c.recv()); diff != "" {
			c.t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func (c *streamClient) wantEnd(code codes.Code, text string) {
	c.t.Helper()
	_, err := c.Recv()
	if code == codes.OK {
		if !errors.Is(err, io.EOF) {
			c.t.Errorf("the stream's end: %v", err)
		}
		return
	}
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		c.t.Errorf("got %s %q, want %s %q", s.Code(), s.Message(), code, text)
	}
}

// TestStreamOrder checks that responses of plain models wait for those of earlier requests, and that responses of
// decoupled models do not.
// shows: stream.order
func TestStreamOrder(t *testing.T) {
	t.Parallel()
	c, e, _ := openStream(t, t.Context())
	c.send(`model_name: "held" id: "1"`+xAB, `id: "2"`+xAB, `model_name: "nope" id: "3"`, `model_name: "repeat" id: "4"`+xAB)
	c.want(got{ID: "4", Data: "a"}, got{ID: "4", Data: "b"})
	e.Hold <- struct{}{}
	c.want(
		got{ID: "1", Data: "ab", Final: true}, got{ID: "2", Data: "ab", Final: true},
		got{ID: "3", Err: "Request for unknown model: 'nope' is not found", Final: true},
	)
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	c.wantEnd(codes.OK, "")
}

// TestStreamFinal checks which responses are marked final, with and without empty final responses.
// shows: stream.final
func TestStreamFinal(t *testing.T) {
	t.Parallel()
	const wantEmpty = ` parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }`
	c, _, _ := openStream(t, t.Context())
	c.send(`model_name: "marked" id: "1"` + xAB + wantEmpty)
	c.want(got{ID: "1", Data: "a"}, got{ID: "1", Data: "b", Final: true})
	c.send(`model_name: "broken" id: "2"` + xAB + wantEmpty)
	c.want(got{ID: "2", Data: "a"}, got{ID: "2", Data: "b"}, got{ID: "2", Err: "no more", Final: true})
	c.send(`id: "3"` + xAB + wantEmpty)
	c.want(got{ID: "3", Data: "ab", Final: true})
	c.send(`model_name: "repeat" id: "4"` + xAB + wantEmpty)
	c.want(got{ID: "4", Data: "a"}, got{ID: "4", Data: "b"})
	last, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	want := &inference.ModelStreamInferResponse{InferResponse: &inference.ModelInferResponse{
		ModelName: "repeat", ModelVersion: "1", Id: "4", Parameters: map[string]*inference.InferParameter{
			"triton_final_response": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}},
		},
	}}
	if diff := cmp.Diff(want, last, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStreamEarlyError checks that an error which a decoupled model sends before its responses arrives first, and
// once.
func TestStreamEarlyError(t *testing.T) {
	t.Parallel()
	const wantEmpty = ` parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }`
	c, e, _ := openStream(t, t.Context())
	for _, tt := range []struct {
		text string
		last []got
	}{
		{wantEmpty, []got{{ID: "1", Final: true}}},
		{"", nil},
	} {
		c.send(`model_name: "stumbling" id: "1"` + xAB + tt.text)
		c.want(got{ID: "1", Err: "stumbled"}, got{ID: "1", Data: "a"}, got{ID: "1", Data: "b"})
		e.Hold <- struct{}{}
		c.want(tt.last...)
	}
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	c.wantEnd(codes.OK, "")
}

// TestStreamHalfClose checks that active requests get their responses after the client has closed its side.
// shows: stream.half_close
func TestStreamHalfClose(t *testing.T) {
	t.Parallel()
	c, e, _ := openStream(t, t.Context())
	c.send(`model_name: "held"` + xAB)
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	e.Hold <- struct{}{}
	c.want(got{Data: "ab", Final: true})
	c.wantEnd(codes.OK, "")
}

func TestStreamErrors(t *testing.T) {
	t.Parallel()
	c, _, _ := openStream(t, t.Context())
	c.send(`id: "1" inputs { name: "X" datatype: "FP32" shape: 2 } raw_input_contents: "ab"`, `model_name: "silent" id: "2"`+xAB)
	c.want(
		got{ID: "1", Err: "[request id: 1] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 2", Final: true},
		got{ID: "2", Err: "received an unexpected null response", Final: true},
	)
}

// TestStreamStatus checks that the first error closes the stream, after the responses before it.
// shows: stream.grpc_errors
func TestStreamStatus(t *testing.T) {
	t.Parallel()
	c, _, _ := openStream(t, metadata.AppendToOutgoingContext(t.Context(), "triton_grpc_error", "true"))
	c.send(`id: "1"`+xAB, `model_name: "nope"`)
	c.sendLate(`id: "3"` + xAB)
	c.want(got{ID: "1", Data: "ab", Final: true})
	c.wantEnd(codes.InvalidArgument, "Request for unknown model: 'nope' is not found")
}

// shows: stream.cancel
func TestStreamCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, e, _ := openStream(t, ctx)
	c.send(`model_name: "held"`+xAB, `model_name: "held"`+xAB)
	c.send(`model_name: "repeat"` + xAB)
	c.want(got{Data: "a"}, got{Data: "b"}) // all three requests have been received
	cancel()
	<-e.Cancelled
	<-e.Cancelled
}

// TestStreamPace checks that an endless model waits for a client that does not read.
func TestStreamPace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, e, _ := openStream(t, ctx)
	c.send(`model_name: "endless"` + xAB)
	const most = 100_000 // bounds the responses in the connection, its windows and the queue
	n := <-e.Full
	for range n {
		c.want(got{Data: "ab"})
	}
	if again := <-e.Full; again < n || again-n > most {
		t.Errorf("%d responses before the first wait, %d before the second", n, again)
	}
	cancel()
	for {
		if _, err := c.Recv(); err != nil {
			return
		}
	}
}

// TestStreamShutdown checks that Shutdown ends a stream without active requests.
func TestStreamShutdown(t *testing.T) {
	t.Parallel()
	c, _, s := openStream(t, t.Context())
	c.send(xAB)
	c.want(got{Data: "ab", Final: true})
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.WithoutCancel(t.Context())) }()
	c.wantEnd(codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDecoupledUnary(t *testing.T) {
	t.Parallel()
	e := servertest.NewStreams()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e})
	_, err := c.ModelInfer(t.Context(), message(t, `model_name: "repeat"`+xAB))
	if s := status.Convert(err); s.Code() != codes.Unimplemented || s.Message() != "ModelInfer RPC doesn't support models with decoupled transaction policy" {
		t.Error(err)
	}
}

// TestStreamCutOff checks the status of a stream whose request does not end in the time of a shutdown.
func TestStreamCutOff(t *testing.T) {
	t.Parallel()
	c, e, s := openStream(t, t.Context())
	c.send(`model_name: "echo"` + xAB)
	c.want(got{Data: "ab", Final: true})
	c.send(`model_name: "held"` + xAB)
	over, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Shutdown(over) }()
	cancel()
	_, err := c.Recv()
	if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != "GRPC server stopped before the requests of this stream were complete: send them again, to another server." &&
		st.Message() != "GRPC server is shutting down and has stopped accepting new requests." { // it had not received the request
		t.Errorf("the stream ended with %v", err)
	}
	close(e.Hold)
	<-done
}
