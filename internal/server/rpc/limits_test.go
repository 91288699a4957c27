package rpc_test

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

func plain() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// TestRapidReset checks that a client that resets its calls at once has at most as many handlers run as streams may be open.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	const most = 4
	addr, e, _ := start(t, func(s *rpc.Settings) { s.MaxStreams = most })
	r := dialRaw(t, addr).connect()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for id := uint32(1); id < 200; id += 2 {
			r.headers(id, false, fields(service+"FullDuplexCall", "x-block", "1"))
			r.must(r.fr.WriteData(id, true, nil))
			r.must(r.fr.WriteRSTStream(id, http2.ErrCodeCancel))
		}
	}()
	<-sent
	// Calls that are reset before their handlers began have none.
	close(e.release)
	r.headers(999, true, fields("/a.B/C"))
	if got := r.outcome(999); !strings.Contains(got[0], "grpc-status: 12") {
		t.Errorf("got %q", got)
	}
	if n := len(e.entered); n > most {
		t.Errorf("%d handlers were called", n)
	}
}

// TestPings checks that early pings end a connection, unless the server has sent something since the last one.
func TestPings(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, func(s *rpc.Settings) { s.Pings = keepalive.EnforcementPolicy{MinTime: time.Hour} })
	r := dialRaw(t, addr).connect()
	for id := uint32(1); id < 20; id += 2 {
		r.headers(id, true, fields("/a.B/C"))
		r.outcome(id)
		r.must(r.fr.WritePing(false, [8]byte{1}))
	}
	for range 3 {
		r.must(r.fr.WritePing(false, [8]byte{2}))
	}
	if e := r.next(); e.text != "GOAWAY ENHANCE_YOUR_CALM too_many_pings" {
		t.Errorf("got %q", e.text)
	}
	if e := r.next(); e.text != "closed" {
		t.Errorf("got %q", e.text)
	}
}

// TestIdleFrames checks that very many frames that serve no call end a connection.
func TestIdleFrames(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*http2.Framer) error{
		"settings":   func(fr *http2.Framer) error { return fr.WriteSettings() },
		"priorities": func(fr *http2.Framer) error { return fr.WritePriority(1, http2.PriorityParam{StreamDep: 3}) },
		"unknown":    func(fr *http2.Framer) error { return fr.WriteRawFrame(0x77, 0, 0, nil) },
		"empty data": func(fr *http2.Framer) error { return fr.WriteData(1, false, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _, _ := start(t, nil)
			r := dialRaw(t, addr).connect()
			r.headers(1, false, fields(service+"FullDuplexCall"))
			go func() {
				for err := error(nil); err == nil; { // until the server has had enough
					err = write(r.fr)
				}
			}()
			r.ignored = false // writes nothing
			for e := r.next(); !strings.HasPrefix(e.text, "GOAWAY ENHANCE_YOUR_CALM"); e = r.next() {
				if e.end {
					t.Fatalf("got %q", e.text)
				}
			}
			_ = r.nc.Close()
		})
	}
}

// TestContinuations checks that headers without an end are refused while they come.
func TestContinuations(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 16 << 10} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			addr, _, _ := start(t, nil)
			r := dialRaw(t, addr).connect()
			go func() {
				err := r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
				for err == nil { // until the server has had enough
					err = r.fr.WriteContinuation(1, false, make([]byte, n))
				}
			}()
			r.ignored = false // writes nothing
			e := r.next()
			for strings.HasPrefix(e.text, "SETTINGS") {
				e = r.next()
			}
			if !strings.HasPrefix(e.text, "GOAWAY ENHANCE_YOUR_CALM") && e.text != "closed" {
				t.Errorf("got %q", e.text)
			}
			_ = r.nc.Close()
		})
	}
}

// TestHeaderBomb checks that a small block of headers that stands for many large ones is refused, and that the connection goes on.
func TestHeaderBomb(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect()
	r.headers(1, true, fields("/a.B/C", "x-large", strings.Repeat("a", 3000)))
	r.outcome(1)
	block := append([]byte(nil), r.encode(fields("/a.B/C"))...)
	for range 4000 {
		block = append(block, 0xbe) // the large field in the table
	}
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true, EndStream: true}))
	if got := r.outcome(3); got[0] != "RST_STREAM FRAME_SIZE_ERROR" {
		t.Errorf("got %q", got)
	}
	r.headers(5, true, fields("/a.B/C", "x-large", strings.Repeat("a", 3000)))
	if got := r.outcome(5); !strings.Contains(got[0], "grpc-status: 12") {
		t.Errorf("got %q", got)
	}
}

// TestHeadersOfClient checks that headers that are larger than the client accepts end a call.
func TestHeadersOfClient(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 200})
	for i, tt := range []struct{ pairs, want string }{
		{"", "grpc-status: 0"}, {strings.Repeat("a", 200), "RST_STREAM INTERNAL_ERROR"},
	} {
		id := uint32(2*i + 1) //nolint:gosec // small
		r.headers(id, false, fields(service+"EmptyCall", "x-trailer-bin", tt.pairs))
		r.must(r.fr.WriteData(id, true, make([]byte, 5)))
		if got := r.outcome(id); got[len(got)-1] != tt.want {
			t.Errorf("got %q", got)
		}
	}
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 10}))
	r.headers(5, true, fields("/a.B/C"))
	if got := r.outcome(5); got[0] != "RST_STREAM INTERNAL_ERROR" {
		t.Errorf("got %q", got)
	}
}

// TestLongHeaders checks that long headers of the server come in several frames.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, func(s *rpc.Settings) { s.MaxHeaders = 64 << 10 })
	r := dialRaw(t, addr).connect()
	r.headers(1, false, fields(service+"EmptyCall", "x-header", strings.Repeat("h", 20000)))
	r.must(r.fr.WriteData(1, true, make([]byte, 5)))
	if got := r.outcome(1); !strings.Contains(got[0], "x-header: "+strings.Repeat("h", 20000)) {
		t.Errorf("got %.100q", got)
	}
}

// TestWindows checks that the server keeps to the windows of its client, in turns for several calls.
func TestWindows(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	const size = 200000
	for id := uint32(1); id <= 5; id += 2 {
		r.headers(id, false, fields(service+"UnaryCall"))
		r.must(r.fr.WriteData(id, true, message(t, &testpb.SimpleRequest{ResponseSize: size})))
	}
	got := map[uint32]int{}
	total := 0
	read := func() uint32 {
		for {
			e := r.next()
			if e.data != nil {
				got[e.id] += len(e.data)
				total += len(e.data)
			}
			if e.end || e.data != nil {
				return e.id
			}
		}
	}
	for len(got) < 3 {
		read()
	}
	if total != 30 {
		t.Fatalf("%d bytes for windows of 10", total)
	}
	// Now the window of the connection is what is left.
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	for total < 65535 {
		read()
	}
	if total != 65535 {
		t.Errorf("%d bytes for a window of 65535", total)
	}
	least, most := min(got[1], got[3], got[5]), max(got[1], got[3], got[5])
	if most-least > 2*16384 {
		t.Errorf("the calls got %v", got)
	}
	// The window of one call is taken away, and all of the connection is given.
	r.must(r.fr.WriteWindowUpdate(0, 1<<20))
	for ended := 0; ended < 3; {
		if e := r.next(); e.end {
			ended++
		} else {
			total += len(e.data)
		}
	}
	if want := 3 * size; total < want || total > want+100 {
		t.Errorf("%d bytes, want %d", total, want)
	}
}

// TestWindowOverrun checks that a call whose client sends more than its window is reset.
func TestWindowOverrun(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, func(s *rpc.Settings) { s.ConnWindow = 1 << 20 })
	// The handler waits after 64 kB of responses, and reads no more.
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.headers(1, false, fields(service+"FullDuplexCall"))
	one := message(t, &testpb.StreamingOutputCallRequest{Payload: payload(1000).GetPayload()})
	for range 300 {
		r.must(r.fr.WriteData(1, false, one))
	}
	got := r.outcome(1)
	if last := got[len(got)-1]; last != "RST_STREAM FLOW_CONTROL_ERROR" {
		t.Errorf("got %q", got)
	}
	r.headers(3, true, fields("/a.B/C"))
	if got := r.outcome(3); !strings.Contains(got[0], "grpc-status: 12") {
		t.Errorf("got %q", got)
	}
}

// TestLargeMessages sends messages that are larger than all windows and buffers, both ways.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, func(s *rpc.Settings) { s.MaxReceive = 64 << 20 })
	c := testpb.NewTestServiceClient(dial(t, addr, plain(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))))
	var wg sync.WaitGroup
	for _, n := range []int{0, 1, 4091, 4092, 16379, 16384, 65535, 1 << 20, 3 << 20} {
		wg.Go(func() {
			for range 3 {
				out, err := c.UnaryCall(t.Context(), payload(n))
				if err != nil || len(out.GetPayload().GetBody()) != n || strings.Count(string(out.GetPayload().GetBody()), "p") != n {
					t.Errorf("%d bytes: got %d, %v", n, len(out.GetPayload().GetBody()), err)
				}
			}
		})
		wg.Go(func() {
			s, err := c.FullDuplexCall(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for range 5 {
				if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(n).GetPayload()}); err != nil {
					t.Error(err)
				}
				out, err := s.Recv()
				if err != nil || len(out.GetPayload().GetBody()) != n {
					t.Errorf("stream, %d bytes: got %d, %v", n, len(out.GetPayload().GetBody()), err)
				}
			}
			_ = s.CloseSend()
			if _, err := s.Recv(); err != io.EOF { //nolint:errorlint // grpc's own
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestUnread checks that a stream whose client reads nothing holds a bounded number of responses, and ends when the client leaves.
func TestUnread(t *testing.T) {
	t.Parallel()
	addr, _, s := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.headers(1, false, fields(service+"FullDuplexCall"))
	one := message(t, &testpb.StreamingOutputCallRequest{Payload: payload(1000).GetPayload()})
	// The handler waits after 64 kB of responses, so that the window of requests is not returned.
	left := 65535
	for left >= len(one) {
		r.must(r.fr.WriteData(1, false, one))
		left -= len(one)
	}
	r.headers(3, true, fields("/a.B/C"))
	if got := r.outcome(3); !strings.Contains(got[0], "grpc-status: 12") {
		t.Errorf("got %q", got)
	}
	_ = r.nc.Close()
	s.GracefulStop() // waits for the handler
}
