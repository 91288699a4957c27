package rpc_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

// TestBadFrames sends what HTTP/2 forbids. The server must end the stream or the connection with the code that it prescribes.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	frame := func(kind http2.FrameType, flags http2.Flags, id uint32, p ...byte) func(*raw) {
		return func(r *raw) {
			b := []byte{byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p)), byte(kind), byte(flags)}
			r.write(append(binary.BigEndian.AppendUint32(b, id), p...))
		}
	}
	open := func(r *raw) { r.headers(1, false, fields(service+"FullDuplexCall")) }
	ended := func(r *raw) { r.headers(1, true, fields(service+"FullDuplexCall", "x-wait", "1")) }
	setting := func(id http2.SettingID, v uint32) func(*raw) {
		return frame(http2.FrameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, byte(id)}, v)...)
	}
	word := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	for _, tt := range []struct {
		name string
		send []func(*raw)
		want string // the beginning of an event
	}{
		{"DATA of stream 0", []func(*raw){frame(http2.FrameData, 0, 0, 1)}, "GOAWAY PROTOCOL_ERROR"},
		{"DATA of an idle stream", []func(*raw){frame(http2.FrameData, 0, 1, 1)}, "GOAWAY PROTOCOL_ERROR"},
		{"DATA after the end", []func(*raw){ended, frame(http2.FrameData, 0, 1, 1)}, "RST_STREAM STREAM_CLOSED"},
		{"padding", []func(*raw){open, frame(http2.FrameData, http2.FlagDataPadded, 1, 5, 0, 0)}, "GOAWAY PROTOCOL_ERROR"},
		{"padding without a length", []func(*raw){open, frame(http2.FrameData, http2.FlagDataPadded, 1)}, "GOAWAY PROTOCOL_ERROR"},
		{"large frame", []func(*raw){open, func(r *raw) { r.write([]byte{0, 0x40, 1, 0, 0, 0, 0, 0, 1}) }}, "GOAWAY FRAME_SIZE_ERROR"},
		{"even stream", []func(*raw){func(r *raw) { r.headers(2, true, fields(service+"EmptyCall")) }}, "GOAWAY PROTOCOL_ERROR"},
		{"stream 0", []func(*raw){func(r *raw) { r.headers(0, true, fields(service+"EmptyCall")) }}, "GOAWAY PROTOCOL_ERROR"},
		{"earlier stream", []func(*raw){
			func(r *raw) { r.headers(5, true, fields(service+"EmptyCall")) }, func(r *raw) { r.headers(3, true, fields(service+"EmptyCall")) },
		}, "GOAWAY PROTOCOL_ERROR"},
		{"headers twice", []func(*raw){open, open}, "GOAWAY PROTOCOL_ERROR"},
		{"priority is cut", []func(*raw){frame(http2.FrameHeaders, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, 1, 1, 2)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"HPACK index", []func(*raw){frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0xff, 0xff, 0xff, 0x7f)}, "GOAWAY COMPRESSION_ERROR"},
		{"HPACK is cut", []func(*raw){frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0x40, 0x05)}, "GOAWAY COMPRESSION_ERROR"},
		{"HPACK table too large", []func(*raw){frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0x3f, 0xe1, 0xff, 0x03)}, "GOAWAY COMPRESSION_ERROR"},
		{"no CONTINUATION", []func(*raw){frame(http2.FrameHeaders, 0, 1, 0x83), frame(http2.FramePing, 0, 0, make([]byte, 8)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"CONTINUATION of another stream", []func(*raw){frame(http2.FrameHeaders, 0, 1, 0x83), frame(http2.FrameContinuation, 0, 3, 0x83)}, "GOAWAY PROTOCOL_ERROR"},
		{"CONTINUATION alone", []func(*raw){frame(http2.FrameContinuation, 0, 1, 0x83)}, "GOAWAY PROTOCOL_ERROR"},
		{"RST_STREAM of an idle stream", []func(*raw){frame(http2.FrameRSTStream, 0, 1, word(8)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"RST_STREAM of stream 0", []func(*raw){frame(http2.FrameRSTStream, 0, 0, word(8)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"RST_STREAM is cut", []func(*raw){open, frame(http2.FrameRSTStream, 0, 1, 1)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"SETTINGS of a stream", []func(*raw){frame(http2.FrameSettings, 0, 1)}, "GOAWAY PROTOCOL_ERROR"},
		{"SETTINGS is cut", []func(*raw){frame(http2.FrameSettings, 0, 0, 1)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"SETTINGS ack with settings", []func(*raw){frame(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)...)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"push", []func(*raw){setting(http2.SettingEnablePush, 2)}, "GOAWAY PROTOCOL_ERROR"},
		{"window", []func(*raw){setting(http2.SettingInitialWindowSize, 1<<31)}, "GOAWAY FLOW_CONTROL_ERROR"},
		{"frame size", []func(*raw){setting(http2.SettingMaxFrameSize, 1<<14-1)}, "GOAWAY PROTOCOL_ERROR"},
		{"window of a stream grows too large", []func(*raw){
			open, frame(http2.FrameWindowUpdate, 0, 1, word(1<<31-1-65535)...), setting(http2.SettingInitialWindowSize, 65536),
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		{"PING of a stream", []func(*raw){frame(http2.FramePing, 0, 1, make([]byte, 8)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"PING is cut", []func(*raw){frame(http2.FramePing, 0, 0, 1)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"WINDOW_UPDATE of 0", []func(*raw){frame(http2.FrameWindowUpdate, 0, 0, word(0)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"WINDOW_UPDATE too large", []func(*raw){frame(http2.FrameWindowUpdate, 0, 0, word(1<<31-1)...)}, "GOAWAY FLOW_CONTROL_ERROR"},
		{"WINDOW_UPDATE is cut", []func(*raw){frame(http2.FrameWindowUpdate, 0, 0, 1)}, "GOAWAY FRAME_SIZE_ERROR"},
		{"WINDOW_UPDATE of an idle stream", []func(*raw){frame(http2.FrameWindowUpdate, 0, 1, word(1)...)}, "GOAWAY PROTOCOL_ERROR"},
		{"WINDOW_UPDATE of 0 for a stream", []func(*raw){open, frame(http2.FrameWindowUpdate, 0, 1, word(0)...)}, "RST_STREAM PROTOCOL_ERROR"},
		{"WINDOW_UPDATE too large for a stream", []func(*raw){open, frame(http2.FrameWindowUpdate, 0, 1, word(1<<31-1)...)}, "RST_STREAM FLOW_CONTROL_ERROR"},
		{"PRIORITY of stream 0", []func(*raw){frame(http2.FramePriority, 0, 0, 0, 0, 0, 0, 0)}, "GOAWAY PROTOCOL_ERROR"},
		{"PRIORITY is cut", []func(*raw){open, frame(http2.FramePriority, 0, 1, 1)}, "RST_STREAM FRAME_SIZE_ERROR"},
		{"PUSH_PROMISE", []func(*raw){frame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, 0, 0, 0, 2)}, "GOAWAY PROTOCOL_ERROR"},
		{"GOAWAY of a stream", []func(*raw){frame(http2.FrameGoAway, 0, 1, make([]byte, 8)...)}, "GOAWAY PROTOCOL_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := dialRaw(t, addr).connect()
			for _, send := range tt.send {
				send(r)
			}
			for {
				e := r.next()
				if strings.HasPrefix(e.text, tt.want) {
					break
				}
				if e.end {
					t.Fatalf("got %q, want %q", e.text, tt.want)
				}
			}
			if strings.HasPrefix(tt.want, "RST_STREAM") { // the connection goes on
				r.headers(7, false, fields(service+"EmptyCall"))
				r.must(r.fr.WriteData(7, true, make([]byte, 5)))
				if got := r.outcome(7); !strings.HasPrefix(got[len(got)-1], "grpc-status: 0") {
					t.Errorf("next call: %q", got)
				}
			}
		})
	}
}

// TestIgnoredFrames sends what HTTP/2 lets a server ignore.
func TestIgnoredFrames(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: 0x99, Val: 1})
	r.must(r.fr.WriteRawFrame(0x77, 0xff, 0, []byte("unknown")))
	r.must(r.fr.WriteRawFrame(0x77, 0xff, 9, nil))
	r.must(r.fr.WritePriority(1, http2.PriorityParam{StreamDep: 1}))
	r.must(r.fr.WriteGoAway(0, http2.ErrCodeNo, nil))
	block := bytes.Clone(r.encode(fields(service + "UnaryCall")))
	// A block in three frames, with padding and a priority.
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1], PadLength: 7, Priority: http2.PriorityParam{StreamDep: 3, Weight: 1}}))
	r.must(r.fr.WriteContinuation(1, false, block[1:2]))
	r.must(r.fr.WriteContinuation(1, true, block[2:]))
	sent := message(t, payload(100))
	for _, b := range sent { // byte after byte
		r.must(r.fr.WriteDataPadded(1, false, []byte{b}, []byte{0, 0}))
	}
	r.must(r.fr.WriteData(1, true, nil))
	got := r.outcome(1)
	if want := []string{":status: 200; content-type: application/grpc", "109 bytes", "grpc-status: 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Frames of a stream that has ended.
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	r.must(r.fr.WriteWindowUpdate(1, 1))
	r.must(r.fr.WriteData(1, false, []byte("late")))
	r.headers(3, true, fields(service+"EmptyCall"))
	if got := r.outcome(3); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestNoHTTP2 checks that a connection without the preface and settings is closed.
func TestNoHTTP2(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	for _, sent := range []string{"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\n\r\n", http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"} {
		r := dialRaw(t, addr)
		r.write([]byte(sent))
		for err := error(nil); err == nil; { // it may be reset
			_, err = r.nc.Read(make([]byte, 100))
		}
	}
}

// TestTable checks that the server tells a client that uses a smaller table of HPACK, once.
func TestTable(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	r := dialRaw(t, addr).connect(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	for id := uint32(1); id < 5; id += 2 {
		r.headers(id, true, fields("/a.B/C"))
		var block []byte
		for block == nil {
			f, err := r.fr.ReadFrame()
			r.must(err)
			if h, ok := f.(*http2.HeadersFrame); ok {
				block = bytes.Clone(h.HeaderBlockFragment())
			}
		}
		if said := block[0] == 0x20; said != (id == 1) {
			t.Errorf("stream %d: %x", id, block)
		}
	}
}

// TestStreamsLimit checks the number of streams that are open at a time.
func TestStreamsLimit(t *testing.T) {
	t.Parallel()
	addr, e, _ := start(t, func(s *rpc.Settings) { s.MaxStreams = 2 })
	r := dialRaw(t, addr).connect()
	for id := uint32(1); id < 5; id += 2 {
		r.headers(id, false, fields(service+"UnaryCall", "x-wait", "1"))
		r.must(r.fr.WriteData(id, true, message(t, &testpb.SimpleRequest{})))
		<-e.entered
	}
	r.headers(5, true, fields(service+"UnaryCall"))
	if got := r.outcome(5); got[0] != "RST_STREAM REFUSED_STREAM" {
		t.Errorf("got %q", got)
	}
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	if err := <-e.canceled; err == nil {
		t.Error("the context was not cancelled")
	}
	r.headers(7, true, fields("/a.B/C"))
	if got := r.outcome(7); !strings.Contains(got[0], "grpc-status: 12") {
		t.Errorf("got %q", got)
	}
}
