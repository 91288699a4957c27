package grpcapi_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

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

// TestSlowMessage checks that a large message may take its time while its bytes come.
func TestSlowMessage(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	f := counter(t, 64<<20)
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: 2 * time.Second})
	part := framed(t, bytesRequest("echo", 3<<20))
	c := call(t, conn.Target(), part[:2<<20], false)
	for f.Bytes() < 2<<20-64<<10 { // it has come
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	fr := http2.NewFramer(c, c)
	for {
		frame, err := fr.ReadFrame()
		var end *http2.HeadersFrame
		if r, ok := frame.(*http2.HeadersFrame); ok {
			end = r
		}
		if end != nil {
			t.Fatal("the call has ended, although it is within the time of its bytes")
		}
		if err != nil { // the connection's own limit: nothing has come for the stall time
			if strings.Contains(err.Error(), "timeout") || errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			return
		}
	}
}

// TestStallBeforeCall checks that a client that pauses within a large message is noticed if all its bytes came before the call began.
func TestStallBeforeCall(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer client.Close()
	l := grpcapi.NewConnection(server, counter(t, 64<<20), 50*time.Millisecond)
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 2<<20))
		sent <- err
	}()
	p := make([]byte, 64<<10)
	for range (2 << 20) / len(p) {
		if _, err := io.ReadFull(l, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := l.Read(p)
		waited <- err
	}()
	l.AddWaiting(1)
	if err := <-waited; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read: %v, want the stall time's end", err)
	}
}
