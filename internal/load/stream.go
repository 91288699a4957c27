package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/inference"
)

// Stream is gRPC with a stream for each client, for models that send any number of responses to a request. It is not among Protocols.
const Stream = "stream"

// Streaming is a Client whose requests have any number of responses. Do returns after the last one.
type Streaming interface {
	Client
	// Responses returns the number of responses to the last request, and when the first one came.
	Responses() (n int, first time.Time)
}

// streamer is a client with a gRPC stream.
type streamer struct {
	stub     inference.GRPCInferenceServiceClient
	header   metadata.MD
	limit    time.Duration
	requests []*inference.ModelInferRequest
	sequencer

	live  inference.GRPCInferenceService_ModelStreamInferClient // nil while there is no stream
	calls int64
	last  int // the request that was sent last
	resp  *inference.ModelInferResponse
	n     int
	first time.Time

	mu          sync.Mutex
	cancel      context.CancelFunc // ends live; guarded by mu
	interrupted bool               // guarded by mu
}

var _ Streaming = (*streamer)(nil)

// The pauses before a lost connection is opened again.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// stream opens n clients, Streams per connection.
func (g *Group) stream(t *Target, requests []Request, n int) error {
	if t.GRPC == "" {
		return errors.New("no address of gRPC is known")
	}
	messages := make([]*inference.ModelInferRequest, len(requests))
	for i := range requests {
		messages[i] = requests[i].message()
	}
	secure := insecure.NewCredentials()
	if t.TLS != nil {
		secure = credentials.NewTLS(t.TLS)
	}
	header := metadata.MD{}
	for name, values := range t.Header {
		header.Append(strings.ToLower(name), values...)
	}
	ids := sequenceIDs()
	var conn *grpc.ClientConn
	for i := range n {
		if i%Streams == 0 {
			var err error
			conn, err = grpc.NewClient("passthrough:///"+t.GRPC, grpc.WithTransportCredentials(secure), grpc.WithNoProxy(),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
				grpc.WithConnectParams(grpc.ConnectParams{
					Backoff: backoff.Config{BaseDelay: firstRetry, Multiplier: 2, MaxDelay: lastRetry}, MinConnectTimeout: t.timeout(),
				}))
			if err != nil {
				return err
			}
			g.close = append(g.close, conn.Close)
		}
		g.Clients = append(g.Clients, &streamer{
			stub: inference.NewGRPCInferenceServiceClient(conn), header: header, limit: t.timeout(), requests: messages,
			sequencer: sequencer{Sequences: t.Sequences, ids: ids},
		})
	}
	return nil
}

// Do sends a request on the stream and reads all its responses.
func (c *streamer) Do(i int) error { return c.do(i, false) }

func (c *streamer) finish() error {
	if c.sent == 0 {
		return nil
	}
	return c.do(c.last, true)
}

func (c *streamer) do(i int, end bool) error {
	c.last, c.resp, c.n, c.first = i, nil, 0, time.Time{}
	if c.live == nil {
		if err := c.open(); err != nil {
			return err
		}
	}
	expired := time.AfterFunc(c.limit, c.drop)
	err := c.exchange(i, end, expired)
	late := !expired.Stop()
	if late {
		c.live = nil // drop has ended it
	}
	if err == nil {
		return nil
	}
	c.fail()
	if _, refused := errors.AsType[*ResponseError](err); refused {
		return err
	}
	c.drop()
	c.live = nil
	if late {
		return fmt.Errorf("no response after %v", c.limit)
	}
	return c.failure(err)
}

// exchange sends a request and reads its responses. Each of them gives the server as much time again.
func (c *streamer) exchange(i int, end bool, expired *time.Timer) error {
	c.calls++
	id := strconv.FormatInt(c.calls, 10)
	r := c.requests[i%len(c.requests)]
	params := map[string]*inference.InferParameter{"triton_enable_empty_final_response": flag(true)}
	c.add(params, end)
	err := c.live.Send(&inference.ModelInferRequest{
		ModelName: r.GetModelName(), ModelVersion: r.GetModelVersion(), Id: id, Parameters: params, Inputs: r.GetInputs(), Outputs: r.GetOutputs(),
		RawInputContents: r.GetRawInputContents(),
	})
	if err != nil && !errors.Is(err, io.EOF) { // the reason of io.EOF is that of Recv
		return err
	}
	for {
		m, err := c.live.Recv()
		if err != nil {
			return err
		}
		resp := m.GetInferResponse()
		if other := resp.GetId(); other != "" && other != id {
			continue // of a request that has failed already
		}
		if text := m.GetErrorMessage(); text != "" {
			return &ResponseError{Text: text[:min(len(text), refusalText)]}
		}
		final := resp.GetParameters()["triton_final_response"].GetBoolParam()
		if len(resp.GetOutputs()) > 0 || !final {
			if c.n++; c.n == 1 {
				c.first = time.Now()
			}
			c.resp = resp
		}
		if final {
			return nil
		}
		expired.Reset(c.limit)
	}
}

// open opens the stream.
func (c *streamer) open() error {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), c.header))
	c.mu.Lock()
	c.cancel = cancel
	stopped := c.interrupted
	c.mu.Unlock()
	if stopped {
		cancel()
		return errInterrupted
	}
	live, err := c.stub.ModelStreamInfer(ctx)
	if err != nil {
		cancel()
		return c.failure(err)
	}
	c.live = live
	return nil
}

// failure returns the error of a stream that has ended: a *ResponseError if the server ended it.
func (c *streamer) failure(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := status.Convert(err)
	switch {
	case c.interrupted:
		return errInterrupted
	case errors.Is(err, io.EOF):
		return errors.New("the server ended the stream before the last response")
	case s.Code() == codes.Unavailable, s.Code() == codes.Canceled:
		return errors.New(s.Message())
	}
	return &ResponseError{Code: s.Code().String(), Text: s.Message()[:min(len(s.Message()), refusalText)]}
}

// drop ends the stream.
func (c *streamer) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// Responses returns the number of responses to the last request, and when the first one came.
func (c *streamer) Responses() (int, time.Time) { return c.n, c.first }

// Outputs decodes the last response with outputs.
func (c *streamer) Outputs() ([]Output, error) {
	if c.resp == nil {
		return nil, errors.New("the last request has no response with outputs")
	}
	b, err := proto.Marshal(c.resp)
	if err != nil {
		return nil, err
	}
	return readProto(b)
}

// Interrupt ends the request under way with an error, and makes all further ones fail. It may be called concurrently.
func (c *streamer) Interrupt() {
	c.mu.Lock()
	c.interrupted = true
	c.mu.Unlock()
	c.drop()
}

// Close ends the stream.
func (c *streamer) Close() error {
	c.drop()
	return nil
}
