package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // a compression of messages
	encodingproto "google.golang.org/grpc/encoding/proto"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a server of either kind.
type server interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

const (
	maxMessage = 1 << 20
	maxHeaders = 8 << 10
	maxStreams = 100
)

func settings() rpc.Settings {
	return rpc.Settings{
		Codec: encoding.GetCodecV2(encodingproto.Name), MaxReceive: maxMessage, MaxHeaders: maxHeaders, MaxStreams: maxStreams,
		Short: func(method string) bool {
			return strings.HasSuffix(method, "/EmptyCall") || strings.HasSuffix(method, "/UnaryCall")
		},
	}
}

// servers returns ours and grpc-go's with the same settings.
func servers() map[string]server {
	return map[string]server{
		"ours":    rpc.New(settings()),
		"grpc-go": grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams)),
	}
}

// serve starts a server, which ends with the test, and returns its address.
func serve(tb testing.TB, s server) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	tb.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return l.Addr().String()
}

const service = "/grpc.testing.TestService/"

// echo is a TestService whose methods do what the metadata of a call says:
//
//	x-status     ends with this code and the text of x-text, with details if x-details is there
//	x-header     is sent as a header, x-trailer-bin as a trailer
//	x-wait       waits until the call is cancelled
//	x-goroutine  sends the trailer x-reader, which says whether the goroutine that reads the connection calls the method
type echo struct {
	testpb.UnimplementedTestServiceServer

	entered  chan struct{} // gets a token from each call that waits
	canceled chan error    // gets the reason for which it ended
	release  chan struct{} // ends calls with x-block
}

func newEcho() *echo {
	return &echo{entered: make(chan struct{}, 1000), canceled: make(chan error, 1000), release: make(chan struct{})}
}

func (e *echo) act(ctx context.Context, header func(metadata.MD) error, trailer func(metadata.MD)) error {
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(name string) string { return strings.Join(md[name], ",") }
	if v := one("x-header"); v != "" {
		if err := header(metadata.Pairs("x-header", v, "x-bin", "\x00\xff", "te", "dropped")); err != nil {
			return err
		}
	}
	if v := one("x-trailer-bin"); v != "" {
		trailer(metadata.Pairs("x-trailer-bin", v, "grpc-status", "dropped"))
	}
	if one("x-wait") != "" {
		e.entered <- struct{}{}
		<-ctx.Done()
		e.canceled <- ctx.Err()
		return ctx.Err()
	}
	if one("x-block") != "" {
		e.entered <- struct{}{}
		<-e.release
	}
	if one("x-goroutine") != "" {
		trailer(metadata.Pairs("x-reader", strconv.FormatBool(bytes.Contains(debug.Stack(), []byte("(*conn).lead(")))))
	}
	if v := one("x-plain-error"); v != "" {
		return errors.New(v)
	}
	code, text := codes.OK, one("x-text")
	if v := one("x-status"); v != "" {
		if err := code.UnmarshalJSON([]byte(v)); err != nil {
			return err
		}
	}
	st := grpcstatus.New(code, text)
	if one("x-details") != "" {
		st, _ = st.WithDetails(&errdetails.ErrorInfo{Reason: "R", Domain: "d"})
	}
	return st.Err()
}

func (e *echo) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	err := e.act(ctx, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	return &testpb.Empty{}, err
}

func (e *echo) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	err := e.act(ctx, func(md metadata.MD) error { return grpc.SendHeader(ctx, md) }, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	size := max(in.GetResponseSize(), 0)
	body := in.GetPayload().GetBody()
	if size > 0 {
		body = bytes.Repeat([]byte("x"), int(size))
	}
	return &testpb.SimpleResponse{Payload: &testpb.Payload{Body: body}}, err
}

func (e *echo) FullDuplexCall(ss testpb.TestService_FullDuplexCallServer) error {
	for {
		in, err := ss.Recv()
		if err == io.EOF { //nolint:errorlint // grpc's own
			return e.act(ss.Context(), ss.SetHeader, ss.SetTrailer)
		}
		if err != nil {
			return err
		}
		out := &testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}
		if p := in.GetResponseParameters(); len(p) > 0 {
			out.Payload = &testpb.Payload{Body: bytes.Repeat([]byte("x"), int(p[0].GetSize()))}
		}
		if err := ss.Send(out); err != nil {
			return err
		}
	}
}

// start starts a server of ours with an echo.
func start(tb testing.TB, change func(*rpc.Settings)) (string, *echo, *rpc.Server) {
	tb.Helper()
	set := settings()
	if change != nil {
		change(&set)
	}
	s, e := rpc.New(set), newEcho()
	testpb.RegisterTestServiceServer(s, e)
	return serve(tb, s), e, s
}

// raw is a client that sends frames as a test says.
type raw struct {
	t       testing.TB
	nc      net.Conn
	fr      *http2.Framer
	enc     *hpack.Encoder
	block   bytes.Buffer
	dec     *hpack.Decoder
	ignored bool // settings, window updates and pings are not returned by next
}

func dialRaw(tb testing.TB, addr string) *raw {
	tb.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nc.Close() })
	r := &raw{t: tb, nc: nc, fr: http2.NewFramer(nc, nc), ignored: true}
	r.fr.AllowIllegalReads, r.fr.AllowIllegalWrites = true, true
	r.enc = hpack.NewEncoder(&r.block)
	r.dec = hpack.NewDecoder(4096, nil)
	return r
}

// connect sends the preface and settings.
func (r *raw) connect(list ...http2.Setting) *raw {
	r.t.Helper()
	r.write([]byte(http2.ClientPreface))
	r.must(r.fr.WriteSettings(list...))
	return r
}

func (r *raw) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	_, err := r.nc.Write(b)
	r.must(err)
}

// fields are those of a call, with pairs of further ones. An empty value after "-name" leaves a field out.
func fields(method string, pairs ...string) [][2]string {
	list := [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	}
	for i := 0; i < len(pairs); i += 2 {
		name, without := strings.CutPrefix(pairs[i], "-")
		if without {
			list = slices.DeleteFunc(list, func(f [2]string) bool { return f[0] == name })
		}
		if !without || pairs[i+1] != "" {
			list = append(list, [2]string{name, pairs[i+1]})
		}
	}
	return list
}

func (r *raw) encode(list [][2]string) []byte {
	r.block.Reset()
	for _, f := range list {
		r.must(r.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return r.block.Bytes()
}

func (r *raw) headers(id uint32, end bool, list [][2]string) {
	r.t.Helper()
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.encode(list), EndHeaders: true, EndStream: end}))
}

// message returns a message with its prefix.
func message(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

func payload(n int) *testpb.SimpleRequest {
	return &testpb.SimpleRequest{Payload: &testpb.Payload{Body: bytes.Repeat([]byte("p"), n)}}
}

// event is what a server sends, as text: frames of streams with what they say, and how the connection ends.
type event struct {
	id   uint32
	text string
	data []byte
	end  bool
}

// next returns the next event. The id of one of the connection is 0. The end of the connection is the text "closed".
func (r *raw) next() event {
	r.t.Helper()
	r.must(r.nc.SetReadDeadline(time.Now().Add(20 * time.Second)))
	for {
		f, err := r.fr.ReadFrame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			r.t.Fatal("the server sends nothing")
		}
		if err != nil {
			return event{text: "closed", end: true}
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			block := bytes.Clone(f.HeaderBlockFragment())
			for ended := f.HeadersEnded(); !ended; {
				next, err := r.fr.ReadFrame()
				r.must(err)
				c, ok := next.(*http2.ContinuationFrame)
				if !ok {
					r.t.Fatalf("found %v in headers", next)
				}
				block, ended = append(block, c.HeaderBlockFragment()...), c.HeadersEnded()
			}
			list, err := r.dec.DecodeFull(block)
			r.must(err)
			var texts []string
			for _, h := range list {
				if h.Name == "grpc-message" && h.Value == "" {
					continue
				}
				texts = append(texts, h.Name+": "+h.Value)
			}
			slices.Sort(texts)
			return event{id: f.StreamID, text: strings.Join(texts, "; "), end: f.StreamEnded()}
		case *http2.DataFrame:
			return event{id: f.StreamID, text: fmt.Sprintf("%d bytes", len(f.Data())), data: bytes.Clone(f.Data()), end: f.StreamEnded()}
		case *http2.RSTStreamFrame:
			return event{id: f.StreamID, text: "RST_STREAM " + f.ErrCode.String(), end: true}
		case *http2.GoAwayFrame:
			return event{text: fmt.Sprintf("GOAWAY %v %s", f.ErrCode, f.DebugData())}
		case *http2.PingFrame:
			if !r.ignored {
				return event{text: fmt.Sprintf("PING %v %x", f.IsAck(), f.Data)}
			}
			if !f.IsAck() {
				r.must(r.fr.WritePing(true, f.Data))
			}
		case *http2.SettingsFrame:
			if !r.ignored {
				return event{text: fmt.Sprintf("SETTINGS %v", f.IsAck())}
			}
			if !f.IsAck() {
				r.must(r.fr.WriteSettingsAck())
			}
		case *http2.WindowUpdateFrame:
			if !r.ignored {
				return event{id: f.StreamID, text: fmt.Sprintf("WINDOW_UPDATE %d", f.Increment)}
			}
		}
	}
}

// call sends a call and returns what comes of it, up to its end.
func (r *raw) outcome(id uint32) []string {
	r.t.Helper()
	var all []string
	size := 0
	for {
		e := r.next()
		if e.id != id && e.id != 0 {
			continue
		}
		if e.data != nil {
			size += len(e.data)
		} else {
			if size > 0 {
				all = append(all, fmt.Sprintf("%d bytes", size))
				size = 0
			}
			all = append(all, e.text)
		}
		if e.end {
			return all
		}
	}
}

// dial returns a client of grpc-go.
func dial(tb testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
