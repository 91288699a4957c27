package grpcapi_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/tls"
	"io"
	"regexp"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/certs/certstest"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestCompressionLevel checks the configured compression level. It is not parallel: the level is global to the
// process.
func TestCompressionLevel(t *testing.T) { //nolint:paralleltest // see above
	level, err := grpcapi.ParseCompression("high")
	if err != nil {
		t.Fatal(err)
	}
	checkCompressed(t, grpcapi.Settings{Compression: level}, "gzip")
	if _, err := grpcapi.ParseCompression("best"); err == nil {
		t.Error("an unknown level is taken")
	}
}

// responses records how responses are compressed.
type responses struct{ compression atomic.Value }

func (*responses) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*responses) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*responses) HandleConn(context.Context, stats.ConnStats)                       {}
func (a *responses) HandleRPC(_ context.Context, s stats.RPCStats) {
	if h, ok := s.(*stats.InHeader); ok {
		a.compression.Store(h.Compression)
	}
}

// checkCompressed starts a server, sends it a request and checks the compression of the response.
func checkCompressed(t *testing.T, set grpcapi.Settings, want string, opts ...grpc.DialOption) {
	t.Helper()
	var a responses
	e := servertest.NewEcho()
	set.Infer, set.Catalog = e, e
	c, _, _ := serveWith(t, set, append(opts, grpc.WithStatsHandler(&a))...)
	data := make([]byte, 1<<20)
	resp, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{
		ModelName: "echo", RawInputContents: [][]byte{data},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "UINT8", Shape: []int64{1 << 20}}},
	})
	if err != nil || !bytes.Equal(resp.GetRawOutputContents()[0], data) {
		t.Fatalf("%d bytes, %v", len(resp.GetRawOutputContents()), err)
	}
	if got := a.compression.Load(); got != want {
		t.Errorf("the response's compression is %q, want %q", got, want)
	}
}

// deflate is a client compressor for deflate.
type deflate struct{}

func (deflate) Type() string { return "deflate" }
func (deflate) Do(w io.Writer, p []byte) error {
	z := zlib.NewWriter(w)
	if _, err := z.Write(p); err != nil {
		return err
	}
	return z.Close()
}

// TestCompressedRequests is not parallel, as TestCompressionLevel: decompressed bytes count at the last server of the process.
// shows: infer.compression
func TestCompressedRequests(t *testing.T) { //nolint:paralleltest // see above
	checkCompressed(t, grpcapi.Settings{}, "identity", grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	checkCompressed(t, grpcapi.Settings{}, "identity", grpc.WithCompressor(deflate{})) //nolint:staticcheck // the other way is a table of the whole process
}

// TestDecompressedTooLarge checks that a message which exceeds the limit when decompressed is refused. It is not parallel, see
// TestCompressedRequests.
// shows: limits
func TestDecompressedTooLarge(t *testing.T) { //nolint:paralleltest // see above
	for _, o := range []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)), grpc.WithCompressor(deflate{})} { //nolint:staticcheck // as above
		e := servertest.NewEcho()
		c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, MaxMessage: 1 << 20}, o)
		_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{RawInputContents: [][]byte{make([]byte, 2<<20)}})
		if status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	}
}

func TestMessageTooLarge(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, MaxMessage: 1 << 20})
	_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{RawInputContents: [][]byte{make([]byte, 2<<20)}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := c.ModelInfer(t.Context(), message(t, xAB)); err != nil {
		t.Errorf("the connection is not usable after: %v", err)
	}
}

// plain is a codec that passes bytes unchanged.
type plain struct{}

func (plain) Name() string { return "proto" }
func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	_, conn, _, _ := serve(t)
	const text = "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"
	bad, out := []byte{0x0a, 0x05, 'a'}, []byte(nil)
	err := conn.Invoke(t.Context(), inference.GRPCInferenceService_ModelInfer_FullMethodName, &bad, &out, grpc.ForceCodecV2(plain{}))
	wantError(t, err, codes.Internal, text)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		inference.GRPCInferenceService_ModelStreamInfer_FullMethodName, grpc.ForceCodecV2(plain{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&bad); err != nil {
		t.Fatal(err)
	}
	wantError(t, stream.RecvMsg(&out), codes.Internal, text)
}

// shows: restricted
func TestRestricted(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Restricted: []infer.Restriction{
		{APIs: []infer.API{infer.APIInference, infer.APIModelRepository}, Key: "Infer-Key", Value: "1"}, {APIs: []infer.API{infer.APIMetadata}, Key: "k", Value: "v"},
	}})
	const text = "This protocol is restricted, expecting header 'triton-grpc-protocol-infer-key'"
	_, err := c.ModelInfer(t.Context(), message(t, xAB))
	wantError(t, err, codes.Unavailable, text)
	_, err = c.RepositoryIndex(metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-infer-key", "2"), &inference.RepositoryIndexRequest{})
	wantError(t, err, codes.Unavailable, text)
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantError(t, err, codes.Unavailable, text)
	if _, err := c.ServerLive(t.Context(), &inference.ServerLiveRequest{}); err != nil {
		t.Error(err)
	}
	for _, values := range [][2]string{{"1", "2"}, {"2", "1"}} { // a key that is there twice
		ctx := metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-infer-key", values[0], "triton-grpc-protocol-infer-key", values[1])
		_, err = c.ModelInfer(ctx, message(t, xAB))
		wantError(t, err, codes.Unavailable, text)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "triton-grpc-protocol-infer-key", "1")
	if _, err := c.ModelInfer(ctx, message(t, xAB)); err != nil {
		t.Error(err)
	}
}

// shows: forward
func TestForward(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, ForwardHeaders: regexp.MustCompile("^x-|^timeout$")})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-one", "1", "other", "2")
	if _, err := c.ModelInfer(ctx, message(t, xAB)); err != nil {
		t.Fatal(err)
	}
	want := infer.Params{{Key: "x-one", Kind: infer.ParamString, String: "1"}}
	if diff := cmp.Diff(want, e.Last.Load().Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := c.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "timeout", "1"), message(t, xAB))
	wantError(t, err, codes.InvalidArgument, "Header 'timeout' is reserved for Triton usage and cannot be forwarded.")
}

// TestLarge checks that the memory of a large tensor is released after the response, and after one that the client
// does not read.
func TestLarge(t *testing.T) {
	t.Parallel()
	e, pool := servertest.NewEcho(), tensor.NewPool()
	c, conn, s := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Alloc: pool}, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	data := make([]byte, 32<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	req := &inference.ModelInferRequest{
		ModelName: "echo", RawInputContents: [][]byte{data, []byte("small"), data[:20000]},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "A", Datatype: "UINT8", Shape: []int64{int64(len(data))}},
			{Name: "B", Datatype: "UINT8", Shape: []int64{5}},
			{Name: "C", Datatype: "UINT8", Shape: []int64{20000}},
		},
	}
	resp, err := c.ModelInfer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(req.GetRawInputContents(), resp.GetRawOutputContents(), bytes.Equal) {
		t.Error("the response differs from the request")
	}
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // the response has started
		t.Fatal(err)
	}
	conn.Close()
	if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for pool.InUse() != 0 { // bounded by the test's timeout
		runtime.GC()
	}
}

// shows: tls
func TestTLS(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "server", time.Now())
	id.Files.ClientCA = id.Files.Cert
	cfg, err := certs.Load(id.Files, nil, "h2")
	if err != nil {
		t.Fatal(err)
	}
	e := servertest.NewEcho()
	known := credentials.NewTLS(&tls.Config{RootCAs: id.Pool, Certificates: []tls.Certificate{id.Cert}, MinVersion: tls.VersionTLS12})
	c, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, TLS: cfg}, grpc.WithTransportCredentials(known))
	if _, err := c.ModelInfer(t.Context(), message(t, xAB)); err != nil {
		t.Fatal(err)
	}
	stranger := credentials.NewTLS(&tls.Config{RootCAs: id.Pool, MinVersion: tls.VersionTLS12})
	for _, creds := range []credentials.TransportCredentials{stranger, insecure.NewCredentials()} {
		other, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		_, err = inference.NewGRPCInferenceServiceClient(other).ServerLive(t.Context(), &inference.ServerLiveRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s without a certificate: %v", creds.Info().SecurityProtocol, err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
}
