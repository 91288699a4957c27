package grpcapi_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// outcome is what a client gets of a call.
type outcome struct {
	status, text string
	data         []byte
}

// said sends the data of a call in frames of several sizes, and returns what comes back.
func said(t *testing.T, address, method, encoding string, data, sizes []byte) outcome {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fr := begin(c, 0)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}) // it reads whatever comes
	_ = fr.WriteWindowUpdate(0, 1<<30)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var headers bytes.Buffer
	h := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"grpc-encoding", encoding},
	} {
		_ = h.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes it
	}
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}) // errors show in ReadFrame
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; ; i++ {
			n := min(len(data), 16<<10-256) // and the padding
			if i < len(sizes) {
				n = min(n, int(sizes[i]))
			}
			_ = fr.WriteDataPadded(1, n == len(data), data[:n], make([]byte, i%2*len(sizes)/2))
			if data = data[n:]; len(data) == 0 {
				break
			}
		}
	}()
	defer func() { <-sent }()
	defer c.Close() // ends it
	var out outcome
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			out.data = append(out.data, f.Data()...)
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				switch h.Name {
				case "grpc-status":
					out.status = h.Value
				case "grpc-message":
					out.text = h.Value
				}
			}
			if f.StreamEnded() {
				return out
			}
		}
	}
}

// FuzzReceive sends calls to a server that reads messages in pieces, because bytes in flight are limited, and to one in which grpc reads
// them. Both must respond alike, and nothing may be left in flight.
func FuzzReceive(f *testing.F) {
	msg := seeds(f)[len(seeds(f))-1]
	whole := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...) //nolint:gosec // short
	large := slices.Concat([]byte{0, 0, 3, 0, 0}, make([]byte, 3<<16))
	for _, data := range [][]byte{
		whole, slices.Concat(whole, whole), whole[:3], whole[:5], whole[:len(whole)-1], nil, large, large[:70_000],
		{1, 0, 0, 0, 0},
		{2, 0, 0, 0, 0},
		{0, 0xff, 0xff, 0xff, 0xff},
		{1, 0, 0, 0, 3, 'x', 'y', 'z'},
	} {
		for i := range uint8(3) {
			f.Add(i, i, data, []byte{1, 4, 200, 7})
		}
	}
	inFlight := infer.NewInFlight(1 << 30)
	address := func(of *infer.InFlight) string {
		e := servertest.NewEcho()
		s := grpcapi.New(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool(), InFlight: of, MaxMessage: 1 << 18})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		f.Cleanup(func() {
			if err := s.Shutdown(f.Context()); err != nil && f.Context().Err() == nil {
				f.Error(err)
			}
			<-served
		})
		return l.Addr().String()
	}
	counted, plain := address(inFlight), address(nil)
	methods := []string{
		inference.GRPCInferenceService_ModelInfer_FullMethodName, inference.GRPCInferenceService_ModelStreamInfer_FullMethodName,
		inference.GRPCInferenceService_ModelReady_FullMethodName,
	}
	encodings := []string{"identity", "gzip", "deflate"}
	f.Fuzz(func(t *testing.T, method, encoding uint8, data, sizes []byte) {
		m, enc := methods[int(method)%len(methods)], encodings[int(encoding)%len(encodings)]
		sizes = sizes[:min(len(sizes), 255)]
		got, want := said(t, counted, m, enc, data, sizes), said(t, plain, m, enc, data, sizes)
		if strings.Contains(got.text, "received multiple request messages") && want.status != "0" {
			want.status, want.text = got.status, got.text // grpc reads the second message before it refuses it
		}
		if want.status != "0" {
			got.data = want.data // a stream that fails may end before its earlier responses are sent
		}
		if got.status != want.status || got.text != want.text || !bytes.Equal(got.data, want.data) {
			t.Errorf("%s, %s, %x: got %+v, want %+v", m, enc, data[:min(len(data), 100)], got, want)
		}
	})
}
