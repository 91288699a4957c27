package main

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

// TestFastPathFlag checks which packages serve open connections, by the stacks of the goroutines. It must not run
// beside other tests, because their servers are in the same process.
func TestFastPathFlag(t *testing.T) { //nolint:paralleltest // see above
	for _, tt := range []struct {
		args       []string
		http, grpc string // the function that waits for a connection's next request
		fast       bool
	}{
		{nil, "internal/server/http1.(*conn).receive", "internal/server/rpc.(*conn).fill", true},
		{[]string{"--http-fast-path=false"}, "net/http.(*conn).serve", "grpc/internal/transport.(*http2Server).HandleStreams", false},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) { //nolint:paralleltest // see above
			a := serve(t, append(tt.args, "--model-repository", t.TempDir())...)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get("http://" + a.http + "/v2/health/live") //nolint:noctx // ends with the server
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("HTTP: %s, %v", resp.Status, err)
			}
			conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			live, err := inference.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &inference.ServerLiveRequest{})
			if err != nil || !live.GetLive() {
				t.Errorf("gRPC: %v, %v", live, err)
			}
			stacks := goroutines(t, tt.http, tt.grpc)
			for _, room := range []string{"internal/server/http1.(*conn)", "internal/server/rpc.(*conn)", "internal/server/sock."} {
				if !tt.fast && strings.Contains(stacks, room) {
					t.Errorf("a goroutine is in %s:\n%s", room, stacks)
				}
			}
		})
	}
}

// goroutines returns the stacks of all goroutines once one is in each of some functions: a client has its response a
// moment before the connection waits for the next request.
func goroutines(t *testing.T, functions ...string) string {
	t.Helper()
	b := make([]byte, 1<<20)
	for begin := time.Now(); ; runtime.Gosched() {
		n := runtime.Stack(b, true)
		for ; n == len(b); n = runtime.Stack(b, true) {
			b = make([]byte, 2*len(b))
		}
		stacks := string(b[:n])
		missing := slices.DeleteFunc(slices.Clone(functions), func(code string) bool { return strings.Contains(stacks, code) })
		if len(missing) == 0 {
			return stacks
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("no goroutine is in %s:\n%s", strings.Join(missing, " or "), stacks)
		}
	}
}
