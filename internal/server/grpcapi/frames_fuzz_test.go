package grpcapi_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// frames returns a conversation of HTTP/2 frames behind the preface: a call of a method with a message.
func frames(method string, message []byte, write func(*http2.Framer)) []byte {
	var out, headers bytes.Buffer
	fr := http2.NewFramer(&out, nil)
	h := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = h.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes it
	}
	_ = fr.WriteSettings()
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true})
	_ = fr.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)) //nolint:gosec // short
	if write != nil {
		write(fr)
	}
	return out.Bytes()
}

// FuzzFrames sends arbitrary bytes behind the preface of HTTP/2 to the gRPC port. The server must go on, and no bytes may be left in
// flight.
func FuzzFrames(f *testing.F) {
	msg := seeds(f)[len(seeds(f))-1]
	f.Add(frames(inference.GRPCInferenceService_ModelInfer_FullMethodName, msg, nil))
	f.Add(frames(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName, msg, func(fr *http2.Framer) { _ = fr.WriteRSTStream(1, http2.ErrCodeCancel) }))
	f.Add(frames(inference.GRPCInferenceService_ServerLive_FullMethodName, nil, func(fr *http2.Framer) {
		_ = fr.WritePing(false, [8]byte{1})
		_ = fr.WriteWindowUpdate(0, 1<<20)
		_ = fr.WriteContinuation(1, true, []byte{0x82})
		_ = fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	}))
	f.Add(frames("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", []byte{0x3a, 1, '*'}, nil))
	f.Fuzz(func(t *testing.T, sent []byte) {
		e := servertest.NewEcho()
		bytesInFlight := infer.NewInFlight(16 << 20)
		s := grpcapi.New(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool(), InFlight: bytesInFlight})
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
		go func() {
			_, _ = io.WriteString(c, http2.ClientPreface) // the server may have had enough
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c) // until the server ends the connection
		_ = c.Close()
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n := bytesInFlight.Bytes(); n != 0 {
			t.Errorf("%d bytes are left in flight", n)
		}
	})
}
