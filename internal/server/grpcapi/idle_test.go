package grpcapi_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestIdleConnection checks that the server closes a connection without calls, that the client's next call connects again, and that a
// connection with an open call stays.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	c, busy, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Keepalive: keepalive.ServerParameters{MaxConnectionIdle: 20 * time.Millisecond}})
	open, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exchange := func() {
		t.Helper()
		if err := open.Send(message(t, xAB)); err != nil {
			t.Fatal(err)
		}
		if _, err := open.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	idle, err := grpc.NewClient(busy.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	for range 3 {
		if _, err := inference.NewGRPCInferenceServiceClient(idle).ServerLive(t.Context(), &inference.ServerLiveRequest{}); err != nil {
			t.Fatal(err)
		}
		for at := idle.GetState(); at != connectivity.Idle; at = idle.GetState() {
			if !idle.WaitForStateChange(t.Context(), at) {
				t.Fatal("the connection without calls is not closed")
			}
		}
	}
	exchange() // of the same stream: it cannot move to another connection
	if err := open.CloseSend(); err != nil {
		t.Error(err)
	}
}

// TestIdleDefault checks the limit of a server whose settings name none.
func TestIdleDefault(t *testing.T) {
	t.Parallel()
	if got := grpcapi.KeepaliveOf(keepalive.ServerParameters{Time: time.Hour}); got.MaxConnectionIdle != 10*time.Minute || got.Time != time.Hour {
		t.Errorf("got %+v", got)
	}
	if got := grpcapi.KeepaliveOf(keepalive.ServerParameters{MaxConnectionIdle: time.Second}); got.MaxConnectionIdle != time.Second {
		t.Errorf("got %+v", got)
	}
}
