package rpc_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

// FuzzFrames sends arbitrary bytes behind the preface and settings, in pieces. The server must go on, and must have no calls and goroutines
// left.
func FuzzFrames(f *testing.F) {
	for _, c := range [][]string{nil, {"x-header", "h", "x-trailer-bin", "AAEC"}, {"grpc-encoding", "gzip"}, {"grpc-timeout", "1S", "host", "h"}} {
		f.Add(seed(f, c, service+"UnaryCall"), uint16(7))
		f.Add(seed(f, c, service+"FullDuplexCall"), uint16(1000))
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint16) {
		s := rpc.New(settings())
		testpb.RegisterTestServiceServer(s, newEcho())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // the server may have had enough
			for n := int(piece) + 1; len(sent) > 0; {
				n = min(n, len(sent))
				_, _ = c.Write(sent[:n])
				sent = sent[n:]
			}
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c) // until the server ends the connection
		<-written
		_ = c.Close()
		s.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// seed returns the frames of two calls.
func seed(f *testing.F, pairs []string, method string) []byte {
	f.Helper()
	var out, block bytes.Buffer
	fr, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	body := message(f, payload(3))
	for id := uint32(1); id <= 3; id += 2 {
		block.Reset()
		for _, h := range fields(method, pairs...) {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a buffer takes it
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, PadLength: 3})
		_ = fr.WriteData(id, false, body[:4])
		_ = fr.WritePing(false, [8]byte{1})
		_ = fr.WriteWindowUpdate(id, 10)
		_ = fr.WriteDataPadded(id, true, body[4:], []byte{0})
	}
	_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	return out.Bytes()
}

// FuzzHeaders decodes header blocks one after another, and compares them with what they are without the remembered ones.
func FuzzHeaders(f *testing.F) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	var all []byte
	for _, pairs := range [][]string{nil, nil, {"x-a", "b"}, {"x-a", "b"}, {"x-a", "c", "x-bin", "AAEC"}, nil, {"-content-type", ""}} {
		block.Reset()
		for _, h := range fields(service+"UnaryCall", pairs...) {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: h[0] == "te"})
		}
		all = append(append(all, byte(block.Len())), block.Bytes()...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, sent []byte) {
		fast, slow := rpc.NewHeads(settings()), rpc.NewHeads(settings())
		for len(sent) > 0 {
			n := min(int(sent[0]), len(sent)-1)
			block := sent[1 : 1+n]
			sent = sent[1+n:]
			for range 2 { // twice, so that it is remembered unless it changes the table
				slow.Forget()
				want, fault := slow.Decode(block)
				got, err := fast.Decode(block)
				if (fault == nil) != (err == nil) {
					t.Fatalf("%x: error %v, want %v", block, err, fault)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%x: %s", block, d)
				}
				if err != nil {
					return // the connection has ended
				}
			}
		}
	})
}
