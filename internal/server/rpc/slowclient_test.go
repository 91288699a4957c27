package rpc_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

// TestResetsOfPausedCalls checks that calls are forgotten which a client resets while it accepts no bytes on its connection.
func TestResetsOfPausedCalls(t *testing.T) {
	t.Parallel()
	addr, _, s := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.headers(1, false, fields(service+"UnaryCall"))
	r.must(r.fr.WriteData(1, true, message(t, &testpb.SimpleRequest{ResponseSize: 70_000}))) // its response fills the window of the connection
	for n := 0; n < 65535; {
		n += len(r.next().data)
	}
	const calls = 50
	last := uint32(1)
	for range calls {
		last += 2
		r.headers(last, false, fields(service+"EmptyCall"))
		r.must(r.fr.WriteData(last, true, make([]byte, 5)))
	}
	for range calls {
		r.next() // headers; the message waits
	}
	for id := uint32(3); id <= last; id += 2 {
		r.must(r.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	// Frames are handled in turn, so the resets are once the headers of a further call have come.
	r.headers(last+2, false, fields(service+"EmptyCall"))
	r.must(r.fr.WriteData(last+2, true, make([]byte, 5)))
	r.next()
	if n := rpc.Paused(s); n > 2 {
		t.Errorf("%d calls are remembered, expected the first and the last one", n)
	}
	_ = r.nc.Close()
}

// TestUnreadResponse checks that a connection is read on while its client does not read a large response.
func TestUnreadResponse(t *testing.T) {
	t.Parallel()
	addr, e, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	r.headers(1, false, fields(service+"UnaryCall"))
	r.must(r.fr.WriteData(1, true, message(t, &testpb.SimpleRequest{ResponseSize: 64 << 20})))
	for n := 0; n < 65535; {
		n += len(r.next().data)
	}
	r.must(r.fr.WriteWindowUpdate(0, 1<<30))
	r.headers(3, false, fields(service+"EmptyCall", "x-wait", "1"))
	r.must(r.fr.WriteData(3, true, make([]byte, 5)))
	select {
	case <-e.entered:
	case <-time.After(time.Minute):
		t.Error("the call behind the response was not read")
	}
	_ = r.nc.Close()
}

// TestManyIdleFrames checks that frames which serve no call are counted in a row: a stream whose client sends settings between its messages
// goes on.
func TestManyIdleFrames(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	r.must(r.fr.WriteWindowUpdate(0, 1<<30))
	r.headers(1, false, fields(service+"FullDuplexCall"))
	one := message(t, &testpb.StreamingOutputCallRequest{Payload: payload(10).GetPayload()})
	for i := range 10_100 {
		r.must(r.fr.WriteData(1, false, one))
		r.must(r.fr.WriteSettings())
		for e := r.next(); e.data == nil; e = r.next() {
			if e.end {
				t.Fatalf("after %d messages: %q", i, e.text)
			}
		}
	}
	_ = r.nc.Close()
}

// meter is a listener that notes the longest write of its connections.
type meter struct {
	net.Listener

	most atomic.Int64
}

func (m *meter) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return meteredConn{c, m}, err
}

type meteredConn struct {
	net.Conn

	m *meter
}

func (c meteredConn) Write(p []byte) (int, error) {
	for n := int64(len(p)); ; {
		if most := c.m.most.Load(); n <= most || c.m.most.CompareAndSwap(most, n) {
			return c.Conn.Write(p)
		}
	}
}

// TestPortions checks that a large response is not copied as a whole: it is written in portions, and its memory is freed with them.
func TestPortions(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{Listener: l}
	s := rpc.New(settings())
	testpb.RegisterTestServiceServer(s, newEcho())
	served := make(chan error, 1)
	go func() { served <- s.Serve(m) }()
	const size = 32 << 20
	c := testpb.NewTestServiceClient(dial(t, l.Addr().String(), plain(), grpc.WithInitialWindowSize(1<<30), grpc.WithInitialConnWindowSize(1<<30),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*size))))
	for range 3 { // the window is open from the second one on
		out, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: size})
		if err != nil || len(out.GetPayload().GetBody()) != size {
			t.Fatalf("%d bytes, %v", len(out.GetPayload().GetBody()), err)
		}
	}
	if most := m.most.Load(); most > 128<<10 {
		t.Errorf("the longest write has %d bytes", most)
	}
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
