package grpcapi_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// framed returns a message with grpc's prefix.
func framed(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...) //nolint:gosec // small
}

// collected waits until the memory of responses that a transport has dropped is released, by garbage collections.
func collected(t *testing.T, memory *tensortest.Checked) {
	t.Helper()
	over := time.Now().Add(5 * time.Minute)
	for memory.Held() > 0 {
		if runtime.GC(); time.Now().After(over) {
			t.Fatalf("%d buffers are held", memory.Held())
		}
	}
}

// TestUnreadResponses checks clients that read nothing of large responses: their connections end after the stall time, and their bytes are
// no longer in flight.
// shows: limits
func TestUnreadResponses(t *testing.T) {
	t.Parallel()
	f := counter(t, 64<<20)
	e := servertest.NewEcho()
	memory := tensortest.NewChecked(t, nil)
	c, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: time.Second, Alloc: memory})
	msg := framed(t, bytesRequest("echo", 4<<20))
	for range 3 {
		unread := call(t, conn.Target(), msg, true)
		defer func() {
			if _, err := io.Copy(io.Discard, unread); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		}()
	}
	for f.Bytes() < 4<<20 { // until a response waits
		runtime.Gosched()
	}
	drained(t, f)
	collected(t, memory)
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 1<<20)); err != nil {
		t.Error(err)
	}
}

// TestUnreadAndGone checks that the bytes of responses are given back when their client leaves, without a garbage collection. It is not
// parallel: there is none meanwhile.
func TestUnreadAndGone(t *testing.T) { //nolint:paralleltest // see above
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	f := counter(t, 64<<20)
	e := servertest.NewEcho()
	memory := tensortest.NewChecked(t, nil)
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, Alloc: memory})
	msg := framed(t, bytesRequest("echo", 4<<20))
	var list []net.Conn
	for range 3 {
		list = append(list, call(t, conn.Target(), msg, true))
	}
	for f.Bytes() < 12<<20 {
		runtime.Gosched()
	}
	for _, c := range list {
		_ = c.Close()
	}
	drained(t, f)
	collected(t, memory)
}

// TestUnreadStream checks that a stream whose client reads nothing ends with the reason, and its decoupled model is free.
// shows: limits
func TestUnreadStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		msg, err := proto.Marshal(message(t, `model_name: "endless"`+xAB))
		if err != nil {
			t.Fatal(err)
		}
		e := servertest.NewStreams()
		f := &flood{ctx: t.Context(), msg: msg, read: make(chan struct{}), last: 1}
		ep := grpcapi.NewEndpoint(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool()})
		begin := time.Now()
		end := make(chan error)
		go func() { end <- ep.Stream(f) }()
		err = <-end
		wantError(t, err, codes.Unavailable, "the client has taken no response of this stream for 1m0s: read responses while the requests are executed")
		if took := time.Since(begin); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		close(f.read) // as the transport ends SendMsg when the method has returned
		synctest.Wait()
	})
}

// TestOpenCalls checks that a connection has a bounded number of calls without a message, and that the others are refused.
// shows: limits
func TestOpenCalls(t *testing.T) {
	t.Parallel()
	const allowed, more = 1000, 50
	e := servertest.NewEcho()
	c, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e})
	raw, err := net.Dial("tcp", conn.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fr := begin(raw, allowed+more)
	for refused := 0; refused < more; {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("%d calls were refused: %v", refused, err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok && n != allowed {
				t.Errorf("%d calls are announced", n)
			}
		case *http2.RSTStreamFrame:
			if refused++; frame.ErrCode != http2.ErrCodeRefusedStream || frame.StreamID <= 2*allowed {
				t.Errorf("call %d: %v", frame.StreamID, frame.ErrCode)
			}
		}
	}
	if _, err := c.ModelInfer(t.Context(), message(t, xAB)); err != nil {
		t.Error(err)
	}
}

// readyMade is a client's compression that sends what was compressed before.
type readyMade struct {
	name string
	data []byte
}

func (r readyMade) Type() string                   { return r.name }
func (r readyMade) Do(w io.Writer, _ []byte) error { _, err := w.Write(r.data); return err }

// TestCompressedBombs sends small messages that are large when decompressed, many at a time: they are refused while they are decompressed.
// It is not parallel: it counts what the process allocates.
// shows: limits
func TestCompressedBombs(t *testing.T) { //nolint:paralleltest // see above
	const bomb, bombs, limit = 128 << 20, 8, 16 << 20
	for name, compressed := range map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	} {
		var b bytes.Buffer
		z := compressed(&b)
		_, _ = z.Write(make([]byte, bomb))
		_ = z.Close()
		f := counter(t, limit)
		e := servertest.NewEcho()
		set := grpcapi.Settings{Infer: e, Catalog: e, InFlight: f}
		c, _, _ := serveWith(t, set, grpc.WithCompressor(readyMade{name, b.Bytes()})) //nolint:staticcheck // the other way is a table of the whole process
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		for range bombs {
			all.Go(func() {
				_, err := c.ModelInfer(t.Context(), message(t, xAB))
				if text := status.Convert(err).Message(); !strings.Contains(text, "use --max-inflight-bytes to change it") && !strings.Contains(text, "after decompression larger than max") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > bombs*limit+64<<20 {
			t.Errorf("%s: %d MiB were allocated for %d messages over a limit of %d MiB", name, n>>20, bombs, limit>>20)
		}
		drained(t, f)
		plain, _, _ := serveWith(t, set)
		if _, err := plain.ModelInfer(t.Context(), message(t, xAB)); err != nil {
			t.Error(err)
		}
	}
}
