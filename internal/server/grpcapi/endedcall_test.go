package grpcapi_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// rawClient is a client on the level of HTTP/2 frames. It reads all the time, so that the server's windows never stop it for long.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	fr   *http2.Framer
	last uint32 // the last call's stream
	room map[uint32]int64
	all  int64 // the connection's room
}

// dialRaw connects.
func dialRaw(t *testing.T, address string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{t: t, conn: conn, fr: begin(conn, 0), room: map[uint32]int64{}, all: 65535}
	for { // the server's settings and the connection's window come first
		if w, ok := c.read().(*http2.WindowUpdateFrame); ok && w.StreamID == 0 {
			return c
		}
	}
}

// read reads a frame.
func (c *rawClient) read() http2.Frame {
	c.t.Helper()
	frame, err := c.fr.ReadFrame()
	if err != nil {
		c.t.Fatalf("the connection has ended: %v", err)
	}
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.all += int64(f.Increment)
		} else {
			c.room[f.StreamID] += int64(f.Increment)
		}
	case *http2.SettingsFrame:
		if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.room[0] = int64(size) // of new streams
		}
	}
	return frame
}

// open opens a call without a message.
func (c *rawClient) open(method string) uint32 {
	c.t.Helper()
	c.last += 2
	id := c.last - 1
	var headers bytes.Buffer
	h := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = h.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes it
	}
	if err := c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true}); err != nil {
		c.t.Fatal(err)
	}
	c.room[id] = c.room[0]
	return id
}

// send sends data of a call, as the windows allow.
func (c *rawClient) send(id uint32, data []byte) {
	c.t.Helper()
	for len(data) > 0 {
		n := min(len(data), 16<<10)
		for c.room[id] < int64(n) || c.all < int64(n) {
			c.read()
		}
		if err := c.fr.WriteData(id, false, data[:n]); err != nil {
			c.t.Fatal(err)
		}
		data = data[n:]
		c.room[id] -= int64(n)
		c.all -= int64(n)
	}
}

// cancel ends a call as a client does that needs it no more.
func (c *rawClient) cancel(id uint32) {
	c.t.Helper()
	if err := c.fr.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
		c.t.Fatal(err)
	}
}

// ended reads until the server has ended a call. The others must not end.
func (c *rawClient) ended(id uint32, others ...uint32) {
	c.t.Helper()
	for {
		frame := c.read()
		_, reset := frame.(*http2.RSTStreamFrame)
		h, _ := frame.(*http2.HeadersFrame)
		if !reset && (h == nil || !h.StreamEnded()) {
			continue
		}
		if at := frame.Header().StreamID; at == id {
			return
		} else if slices.Contains(others, at) {
			c.t.Fatalf("call %d has ended: %v", at, frame)
		}
	}
}

// exchange sends a request over a stream and reads the response.
func (c *rawClient) exchange(id uint32) {
	c.t.Helper()
	c.send(id, framed(c.t, bytesRequest("echo", 10)))
	c.responds(id)
}

// responds reads until data of a stream comes.
func (c *rawClient) responds(id uint32) {
	c.t.Helper()
	for {
		switch f := c.read().(type) {
		case *http2.DataFrame:
			if f.StreamID == id {
				return
			}
		case *http2.HeadersFrame:
			if f.StreamID == id && f.StreamEnded() {
				c.t.Fatal("the stream has ended")
			}
		}
	}
}

// announced returns the beginning of a message of n bytes with some of them.
func announced(n, some int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, some)...) //nolint:gosec // small
}

// TestInFlightEndedCalls checks that calls that end in the middle of a large message leave nothing in flight, while another call of their
// connection waits for a message: a client that cancels uploads must not fill the limit for others.
// shows: limits
func TestInFlightEndedCalls(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	for _, tt := range []struct {
		name string
		size int
		end  func(c *rawClient, id uint32)
	}{
		{"cancelled", 3 << 20, func(c *rawClient, id uint32) { c.cancel(id) }},
		{"refused for its size", limit + 1, func(c *rawClient, id uint32) { c.ended(id) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := counter(t, limit)
			e := servertest.NewEcho()
			other, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
			c := dialRaw(t, conn.Target())
			idle := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
			c.exchange(idle)
			for range 6 {
				id := c.open(inference.GRPCInferenceService_ModelInfer_FullMethodName)
				c.send(id, announced(tt.size, 2<<20))
				tt.end(c, id)
				if err := c.fr.WritePing(false, [8]byte{1}); err != nil { // bytes go on coming
					t.Fatal(err)
				}
				c.exchange(idle) // the server has read all
			}
			drained(t, f)
			if _, err := other.ModelInfer(t.Context(), bytesRequest("echo", 3<<20)); err != nil {
				t.Error(err)
			}
			c.exchange(idle)
		})
	}
}

// TestStallOfEndedCall checks that a connection stays whose calls have ended in the middle of a large message.
func TestStallOfEndedCall(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: counter(t, 64<<20), StallTimeout: 200 * time.Millisecond})
	c := dialRaw(t, conn.Target())
	idle := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	c.exchange(idle)
	cancelled := c.open(inference.GRPCInferenceService_ModelInfer_FullMethodName)
	c.send(cancelled, announced(4<<20, 2<<20))
	c.cancel(cancelled)
	for range 2 { // each ends after the stall time
		c.ended(c.open(inference.GRPCInferenceService_ModelInfer_FullMethodName))
	}
	c.exchange(idle)
}

// TestStallOfOneCall checks that a call ends whose client stops in the middle of a large message, although others of its connection go on,
// and that they stay.
func TestStallOfOneCall(t *testing.T) {
	t.Parallel()
	f := counter(t, 64<<20)
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: 200 * time.Millisecond})
	c := dialRaw(t, conn.Target())
	idle := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	c.exchange(idle)
	for _, method := range []string{inference.GRPCInferenceService_ModelInfer_FullMethodName, inference.GRPCInferenceService_ModelStreamInfer_FullMethodName} {
		id := c.open(method)
		if method == inference.GRPCInferenceService_ModelStreamInfer_FullMethodName {
			c.exchange(id) // it stops in its second message
		}
		c.send(id, announced(4<<20, 2<<20))
		c.ended(id)
		drained(t, f)
		c.exchange(idle)
	}
}
