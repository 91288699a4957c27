package grpcapi_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// askForFile asks for the descriptor of the protocol, which has many kilobytes.
var askForFile = &grpc_reflection_v1.ServerReflectionRequest{
	MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "inference.GRPCInferenceService"},
}

// reflectOver opens a reflection stream that has had a response.
func reflectOver(t *testing.T, conn *grpc.ClientConn) (grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient, error) {
	t.Helper()
	s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		return nil, err
	}
	_ = s.Send(askForFile) // an error shows in Recv
	_, err = s.Recv()
	return s, err
}

// TestReflectionStreams checks that few reflection streams are open at a time.
func TestReflectionStreams(t *testing.T) {
	t.Parallel()
	conn := reflectFor(t, time.Hour)
	var open []grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient
	for range 32 {
		s, err := reflectOver(t, conn)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	_, err := reflectOver(t, conn)
	wantError(t, err, codes.Unavailable, "too many reflection streams are open: close those that are not needed, and try again")
	if err := open[0].CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := open[0].Recv(); err == nil {
		t.Error("a response without a request")
	}
	if _, err := reflectOver(t, conn); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

// TestReflectionTime checks that a reflection stream ends after some time, and its connection stays.
func TestReflectionTime(t *testing.T) {
	t.Parallel()
	conn := reflectFor(t, 20*time.Millisecond)
	s, err := reflectOver(t, conn)
	if err == nil {
		_, err = s.Recv()
	}
	wantError(t, err, codes.DeadlineExceeded, "a reflection stream is open for 100ms at most: open another one")
	if state := conn.GetState(); state != connectivity.Ready {
		t.Errorf("the connection is %v", state)
	}
}

// TestReflectionUnread checks that the connection of a reflection stream whose client takes no responses is closed.
func TestReflectionUnread(t *testing.T) {
	t.Parallel()
	stall := 20 * time.Millisecond
	for !closesUnread(t, stall) { // the server was so slow that it did not wait for the client yet
		if stall *= 4; stall > time.Minute {
			t.Fatal("the connection stays open")
		}
	}
}

// closesUnread sends requests until a reflection stream ends, and reports whether the connection was closed.
func closesUnread(t *testing.T, stall time.Duration) bool {
	t.Helper()
	conn, err := grpc.NewClient(reflectFor(t, stall).Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A status that the server sends instead is behind responses for which this client has no window: it would wait for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 10*stall)
	defer cancel()
	s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	for err == nil { // the client waits for its window in between
		err = s.Send(askForFile)
	}
	if s == nil {
		return false
	}
	for err = nil; err == nil; { // the status is behind the responses that have come
		_, err = s.Recv()
	}
	return status.Code(err) == codes.Unavailable // the connection's state changes later
}

// reflectFor returns a connection to a server with the given stall time.
func reflectFor(t *testing.T, stall time.Duration) *grpc.ClientConn {
	t.Helper()
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: counter(t, 64<<20), StallTimeout: stall})
	return conn
}
