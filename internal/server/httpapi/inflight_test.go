package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// count gives a server a limit, and fails the test if bytes are in flight at its end.
func count(t *testing.T, limit int64) (*infer.InFlight, func(*httpapi.Settings)) {
	t.Helper()
	f := infer.NewInFlight(limit)
	t.Cleanup(func() {
		if n := f.Bytes(); n != 0 {
			t.Errorf("%d bytes are left in flight", n)
		}
	})
	return f, func(set *httpapi.Settings) { set.InFlight = f }
}

func infers(model, header, body string) string {
	return "POST /v2/models/" + model + "/infer HTTP/1.1\r\nHost: x\r\n" + header + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// TestInFlight lets one request hold most of the limit: others must be rejected until it ends.
//
// shows: limits
func TestInFlight(t *testing.T) { //nolint:tparallel // the parts share the limit
	t.Parallel()
	const limit = 1 << 20
	f, limited := count(t, limit)
	address, e := listen(t, limited)
	pad := strings.Repeat(" ", limit-4096)
	holder := dial(t, address)
	holder.send(infers("wait", "", goodInput+pad))
	<-e.Waiting
	if n := f.Bytes(); n < int64(len(pad)) || n > limit {
		t.Fatalf("%d bytes in flight, want about %d", n, len(pad))
	}
	chunked := "POST " + inferPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	zipped := pack(t, "gzip", goodInput+pad)
	big := strings.Repeat(" ", 600<<10)
	for _, tt := range []struct {
		name, request string
		code          int
		want          string
	}{
		{"small", infers("echo", "", goodInput), 200, goodAnswer},
		{"large", infers("echo", "", goodInput+pad), 503, "no room for"},
		{"generate", strings.Replace(infers("echo", "", goodInput+pad), "/infer", "/generate", 1), 503, "no room for"},
		{"decompressed", infers("echo", "Content-Encoding: gzip\r\n", zipped), 503, "no room for"},
		{"in chunks", chunked + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), "{"+big[1:]), 503, "no room for"},
		{"for ever", infers("echo", "", goodInput+pad+pad), 413, "too large"},
		{"small again", infers("echo", "", goodInput), 200, goodAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, address)
			go func() { _, _ = io.WriteString(c, tt.request+infers("echo", "", goodInput)) }()
			resp, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it is read
			if err != nil || resp.StatusCode != tt.code || !strings.Contains(string(body), tt.want) {
				t.Fatalf("status %d, %s, %v; want %d, %s", resp.StatusCode, body, err, tt.code, tt.want)
			}
			if got := resp.Header.Get("Retry-After"); (got == "1") != (tt.code == 503) {
				t.Errorf("Retry-After %q", got)
			}
			if code, body, _ := c.response(); code != http.StatusOK || body != goodAnswer {
				t.Errorf("then: status %d, %s", code, body)
			}
		})
	}
	_ = holder.Close() // it cancels the request
	<-e.Cancelled
	for f.Bytes() >= int64(len(pad)) {
		_, _, _ = call(t, "GET", "http://"+address+"/v2", nil)
	}
	c := dial(t, address)
	c.send(infers("echo", "", goodInput+pad))
	if code, body, _ := c.response(); code != http.StatusOK || body != goodAnswer {
		t.Errorf("after all: status %d, %s", code, body)
	}
}

// TestInFlightEarly checks that a request is rejected before its body is sent, with and without Expect: 100-continue.
func TestInFlightEarly(t *testing.T) {
	t.Parallel()
	_, limited := count(t, 1000)
	address, _ := listen(t, limited)
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		c := dial(t, address)
		c.send("POST " + inferPath + " HTTP/1.1\r\nHost: x\r\n" + expect + "Content-Length: 100000\r\n\r\n")
		if code, body, _ := c.response(); code != http.StatusRequestEntityTooLarge || !strings.Contains(body, "request of 100000 bytes is too large") {
			t.Errorf("status %d, %s", code, body)
		}
	}
}

// TestInFlightAnnounced checks that clients which announce much and send little hold little: other requests fit, and what has arrived is
// counted, in JSON and in binary tensors, chunked or not.
func TestInFlightAnnounced(t *testing.T) {
	t.Parallel()
	const limit, clients, size = 8 << 20, 40, 4 << 20
	f, limited := count(t, limit)
	address, _ := listen(t, limited)
	binary, length := binaryRequest(size / 4)
	head := "POST " + inferPath + " HTTP/1.1\r\nHost: x\r\n"
	sized := fmt.Sprintf("%sContent-Length: %d\r\n", head, len(binary))
	holders := make([]*connection, clients)
	for i := range holders {
		holders[i] = dial(t, address)
		switch i % 3 {
		case 0:
			holders[i].send(sized + "\r\n" + "{")
		case 1:
			holders[i].send(fmt.Sprintf("%s%s: %d\r\n\r\n%s", sized, lengthHeader, length, binary[:length+100]))
		case 2:
			holders[i].send(fmt.Sprintf("%sTransfer-Encoding: chunked\r\n%s: %d\r\n\r\n%x\r\n%s", head, lengthHeader, length, len(binary), binary[:length+100]))
		}
	}
	for f.Bytes() < clients/3*2*(64<<10) { // those with binary tensors are being read
		_, _, _ = call(t, "GET", "http://"+address+"/v2", nil)
	}
	if n := f.Bytes(); n > clients*(128<<10) {
		t.Errorf("%d bytes are in flight for %d clients that have sent nothing", n, clients)
	}
	c := dial(t, address)
	c.send(infers("echo", "", goodInput+strings.Repeat(" ", 1<<20)))
	if code, body, _ := c.response(); code != http.StatusOK || body != goodAnswer {
		t.Errorf("beside them: status %d, %s", code, body)
	}
	holders[1].send(string(binary[length+100:]))
	if code, body, _ := holders[1].response(); code != http.StatusOK {
		t.Errorf("one that sends the rest: status %d, %s", code, body)
	}
	for i := range holders {
		_ = holders[i].Close()
	}
	for f.Bytes() != 0 {
		_, _, _ = call(t, "GET", "http://"+address+"/v2", nil)
	}
}

// bomb panics while it owns a request.
type bomb struct{ infer.Inferer }

func (bomb) Submit(_ context.Context, req *infer.Request, _ infer.Sink) {
	req.Release()
	panic(http.ErrAbortHandler)
}

// TestInFlightIsReleased ends requests in every way; count checks that their bytes are released.
func TestInFlightIsReleased(t *testing.T) {
	t.Parallel()
	binary, length := binaryRequest(1 << 10)
	header := lengthHeader + ": " + strconv.Itoa(length) + "\r\n"
	for name, request := range map[string]string{
		"good":          infers("echo", header, string(binary)),
		"JSON":          infers("echo", "", goodInput),
		"malformed":     infers("echo", "", goodInput[1:]),
		"fails":         infers("fail", "", goodInput),
		"unknown":       infers("nope", "", goodInput),
		"disconnected":  infers("echo", header, string(binary))[:500],
		"in a chunk":    "POST " + inferPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{ ",
		"bad chunk":     "POST " + inferPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{    \r\nzz\r\n",
		"not zipped":    infers("echo", "Content-Encoding: gzip\r\n", goodInput),
		"a stream":      strings.Replace(infers("repeat", "", `{"IN":[1,2,3]}`), "/infer", "/generate_stream", 1),
		"left a stream": strings.Replace(infers("endless", "", `{"IN":[1]}`), "/infer", "/generate_stream", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, limited := count(t, 1<<20)
			address, _ := listen(t, limited)
			c := dial(t, address)
			c.send(request)
			if strings.HasPrefix(name, "dis") || strings.HasPrefix(name, "in ") {
				return // the connection ends with the test
			}
			_, _ = c.r.ReadByte()
		})
	}
	t.Run("panic", func(t *testing.T) {
		t.Parallel()
		_, limited := count(t, 1<<20)
		address, _ := listen(t, limited, func(set *httpapi.Settings) { set.Infer = bomb{} })
		c := dial(t, address)
		c.send(infers("echo", header, string(binary)))
		if _, err := c.r.ReadByte(); err == nil {
			t.Error("a response came")
		}
	})
}
