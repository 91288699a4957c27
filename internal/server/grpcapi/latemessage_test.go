package grpcapi_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestFirstMessage checks that calls without a message end after the stall time, each by itself, with the reason, and that a stream that
// has sent one goes on.
// shows: limits
func TestFirstMessage(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	c, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: counter(t, 64<<20), StallTimeout: 200 * time.Millisecond})
	talking, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := func() {
		t.Helper()
		err := talking.Send(bytesRequest("echo", 10))
		if err == nil {
			_, err = talking.Recv()
		}
		if err != nil {
			t.Errorf("a stream that sends: %v", err)
		}
	}
	said()
	var silent []grpc.ClientStream
	for _, method := range []string{
		inference.GRPCInferenceService_ModelInfer_FullMethodName, inference.GRPCInferenceService_ModelStreamInfer_FullMethodName,
		inference.GRPCInferenceService_ServerLive_FullMethodName, grpc_health_v1.Health_Check_FullMethodName,
		grpc_health_v1.Health_Watch_FullMethodName, grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName,
	} {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, s)
	}
	for _, s := range silent {
		wantError(t, s.RecvMsg(new(inference.ModelInferResponse)), codes.DeadlineExceeded,
			"no message of this call has come for 200ms: send it, and close calls that are not needed")
	}
	said()
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 10)); err != nil {
		t.Error(err)
	}
}

// TestAnnouncedMessage checks that a call ends that announces a message of 2 GB and does not send it.
func TestAnnouncedMessage(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: counter(t, 64<<20), StallTimeout: 200 * time.Millisecond})
	c, err := net.Dial("tcp", conn.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fr := begin(c, 1)
	if err := fr.WriteData(1, false, append(binary.BigEndian.AppendUint32([]byte{0}, 50<<20), "little"...)); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := frame.(*http2.RSTStreamFrame); ok && r.StreamID == 1 {
			return
		}
	}
}

// TestSlowMessage checks that a message may take its time, which its bytes give it.
func TestSlowMessage(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	f := counter(t, 64<<20)
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: 50 * time.Millisecond, Alloc: tensor.NewPool()})
	c := dialRaw(t, conn.Target())
	msg := framed(t, bytesRequest("echo", 900<<10)) // the client need not read all of its response
	slow := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	const part = 512 << 10 // gives it 128 times the stall time
	c.send(slow, msg[:part])
	for range 3 { // each ends after the stall time
		c.ended(c.open(inference.GRPCInferenceService_ModelInfer_FullMethodName), slow)
	}
	if n := f.Bytes(); n < part-128<<10 {
		t.Errorf("%d bytes in flight of %d that have come", n, part)
	}
	c.send(slow, msg[part:])
	c.responds(slow)
}
