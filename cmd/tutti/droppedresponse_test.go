package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

// countedConn counts what a client has received.
type countedConn struct {
	net.Conn
	n *atomic.Int64
}

// Read counts what it reads.
func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestDroppedResponse breaks a connection in the middle of a response, and stops the server: the memory of what the transport drops unsent is
// released, and not reported as lost. It is not parallel: without garbage collections in between, the transport keeps that memory.
func TestDroppedResponse(t *testing.T) { //nolint:paralleltest // see above
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	root := t.TempDir()
	const config = `backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }`
	if err := os.MkdirAll(filepath.Join(root, "plain", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "plain", "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := serve(t, "--model-repository="+root)
	var received atomic.Int64
	var raw atomic.Pointer[net.Conn]
	const window = 64 << 10 // of a stream that is not read
	client, err := grpc.NewClient("passthrough:///"+a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(window),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err == nil {
				raw.Store(&c)
				c = countedConn{c, &received}
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stream, err := inference.NewGRPCInferenceServiceClient(client).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const elements = 100_000
	if err := stream.Send(&inference.ModelInferRequest{
		ModelName: "plain", RawInputContents: [][]byte{make([]byte, 4*elements)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{elements}}},
	}); err != nil {
		t.Fatal(err)
	}
	for received.Load() < window { // the rest waits for the client
		runtime.Gosched()
	}
	if err := (*raw.Load()).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("a response over a broken connection")
	}
} // serve checks that the server reports no tensors
