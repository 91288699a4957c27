package grpcapi_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// field encodes a bytes field.
func field(num protowire.Number, b ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), bytes.Join(b, nil))
}

// TestManyParts checks that fields in very many parts are parsed in linear time and with little memory.
func TestManyParts(t *testing.T) {
	t.Parallel()
	_, conn, _, _ := serve(t)
	input := func(rest ...[]byte) []byte {
		return bytes.Join([][]byte{field(1, []byte("echo")), field(5, append([][]byte{field(1, []byte("X")), field(2, []byte("UINT8"))}, rest...)...)}, nil)
	}
	parts := bytes.Repeat(field(5, field(4, bytes.Repeat([]byte{1}, 50))), 1<<17)
	for _, tt := range []struct {
		name string
		msg  []byte
		want string
	}{
		{
			"contents", input(field(3, []byte{2}), parts),
			"[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'echo'. Expected 2, got 6553600",
		},
		{"packed dims", input(field(3, bytes.Repeat([]byte{1}, 1<<16+1))), "request has more than 65536 dimensions"},
		{"dims", input(bytes.Repeat([]byte{3 << 3, 1}, 1<<16+1)), "request has more than 65536 dimensions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := []byte(nil)
			err := conn.Invoke(t.Context(), inference.GRPCInferenceService_ModelInfer_FullMethodName, &tt.msg, &out, grpc.ForceCodecV2(plain{}))
			wantError(t, err, codes.InvalidArgument, tt.want)
		})
	}
}

// TestStreamLongError checks that a long error text is cut between two characters: invalid UTF-8 would end the
// stream for the client.
func TestStreamLongError(t *testing.T) {
	t.Parallel()
	c, _, _ := openStream(t, t.Context())
	for _, start := range []string{"a", "ab"} {
		c.send(`model_name: "` + start + strings.Repeat("é", 5000) + `"`)
		if got := c.recv().Err; !strings.Contains(got, start+"é") {
			t.Errorf("error %q", got)
		}
	}
}

// flood is the server's end of a stream. Its client sends as much as it can and reads nothing until read is closed.
type flood struct {
	grpc.ServerStream
	ctx      context.Context
	msg      []byte
	received atomic.Int64
	read     chan struct{}
	last     int64 // number of requests
}

func (f *flood) Context() context.Context { return f.ctx }

func (f *flood) RecvMsg(m any) error {
	if f.received.Load() == f.last {
		return io.EOF
	}
	f.received.Add(1)
	return grpcapi.Unmarshal(mem.BufferSlice{mem.SliceBuffer(f.msg)}, m)
}

func (f *flood) SendMsg(m any) error {
	<-f.read
	b, err := grpcapi.Marshal(m)
	b.Free()
	return err
}

// TestStreamFlood checks that the server stops receiving from a client that does not read, and receives all
// requests once it does.
func TestStreamFlood(t *testing.T) {
	t.Parallel()
	const size, last = 8 << 20, 40
	synctest.Test(t, func(t *testing.T) {
		req := message(t, ` inputs { name: "X" datatype: "UINT8" }`)
		req.Inputs[0].Shape, req.RawInputContents = []int64{size}, [][]byte{make([]byte, size)}
		msg, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		e := servertest.NewStreams()
		f := &flood{ctx: t.Context(), msg: msg, read: make(chan struct{}), last: last}
		end := make(chan error)
		ep := grpcapi.NewEndpoint(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool()})
		go func() { end <- ep.Stream(f) }()
		synctest.Wait()
		if got := f.received.Load(); got < 8 || got > 20 {
			t.Errorf("%d requests of %d bytes were received from a client that does not read", got, size)
		}
		close(f.read)
		if err := <-end; err != nil {
			t.Error(err)
		}
		if got := f.received.Load(); got != last {
			t.Errorf("%d requests were received, expected %d", got, last)
		}
	})
}
