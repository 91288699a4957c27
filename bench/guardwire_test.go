package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/inference"
)

const (
	guardModel   = "fp32x16"
	guardSockets = 500 // requests in a round
)

// guardOverSockets lists the paths of a small tensor through the whole server, on one connection each. The client's
// cost is part of a request's.
func guardOverSockets(t *testing.T) []guardPath {
	t.Helper()
	alloc := tensor.NewPool()
	repo := guardRepository(t, alloc)
	web := httpapi.New(httpapi.Settings{Infer: repo, Catalog: repo, Alloc: alloc})
	addr := guardListen(t, web.Serve, web.Shutdown)
	rpc := grpcapi.New(grpcapi.Settings{Infer: repo, Catalog: repo, Alloc: alloc})
	raw, text := binaryInfer(guardModel, 16), jsonInfer(guardModel, 16)
	paths := []guardPath{
		{Name: "HTTP binary, FP32[16]", run: guardOverHTTP(t, addr, raw)},
		{Name: "HTTP JSON, FP32[16]", run: guardOverHTTP(t, addr, text)},
		{Name: "gRPC, FP32[16]", run: guardOverGRPC(t, guardListen(t, rpc.Serve, rpc.Shutdown))},
	}
	for i := range paths {
		paths[i].Calls, paths[i].Slack, paths[i].Noise = guardSockets, 0.5, 64
	}
	handler := newGuardPath("HTTP binary, FP32[16], without sockets", guardHandler(t, web, raw))
	parsing := newGuardPath("HTTP JSON, FP32[16], without sockets", guardHandler(t, web, text))
	return append(paths, handler, parsing)
}

func guardRepository(t *testing.T, alloc tensor.Allocator) *repository.Repository {
	t.Helper()
	registry, err := backends.NewRegistry(identity.NewFactory())
	if err != nil {
		t.Fatal(err)
	}
	repo, err := repository.Open(t.Context(), repository.Settings{
		Roots: []string{"testdata/identity"}, Only: []string{guardModel}, Backends: registry, Alloc: alloc, Metrics: telemetry.NewMetrics(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := repo.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return repo
}

// guardListen runs a server until the test ends and returns its address.
func guardListen(t *testing.T, serve func(net.Listener) error, stop func(context.Context) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(l) // returns an error when it is stopped
	}()
	t.Cleanup(func() {
		if err := stop(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

// guardOverHTTP sends the same request again and again over one connection, with a client that allocates nothing.
func guardOverHTTP(t *testing.T, addr string, request []byte) func(n int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var seen bytes.Buffer
	if err := discard(conn, bufio.NewReader(io.TeeReader(conn, &seen)), request); err != nil {
		t.Fatal(err)
	}
	response := make([]byte, seen.Len()) // as long as each that follows
	return func(n int) {
		for range n {
			_, err := conn.Write(request)
			fail(err)
			_, err = io.ReadFull(conn, response)
			fail(err)
		}
	}
}

// guardOverGRPC sends the same request again and again over one connection.
func guardOverGRPC(t *testing.T, addr string) func(n int) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := inference.NewGRPCInferenceServiceClient(conn)
	request := &inference.ModelInferRequest{
		ModelName: guardModel, RawInputContents: [][]byte{make([]byte, 64)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{16}}},
	}
	return func(n int) {
		for range n {
			_, err := client.ModelInfer(t.Context(), request)
			fail(err)
		}
	}
}

// guardHandler calls the server's handler with the same request again and again.
func guardHandler(t *testing.T, h http.Handler, message []byte) func(n int) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(message)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := &guardBody{}
	r.Body = body
	w := &guardWriter{header: http.Header{}}
	return func(n int) {
		for range n {
			body.Reset(content)
			w.status = http.StatusOK
			h.ServeHTTP(w, r)
			if w.status != http.StatusOK {
				panic(http.StatusText(w.status))
			}
		}
	}
}

// guardBody is a request body that can be read again.
type guardBody struct{ bytes.Reader }

// Close does nothing.
func (*guardBody) Close() error { return nil }

// guardWriter is a response writer that allocates nothing.
type guardWriter struct {
	header http.Header
	status int
}

// Header returns the header.
func (w *guardWriter) Header() http.Header { return w.header }

// WriteHeader stores the status.
func (w *guardWriter) WriteHeader(status int) { w.status = status }

// Write discards its data.
func (*guardWriter) Write(b []byte) (int, error) { return len(b), nil }
