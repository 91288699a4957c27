package httpapi_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestHalfClosed checks that a client which closes its sending half while its request runs gets an error that says so, from both servers:
// never an empty text.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	address, e := listen(t)
	wait := infers("wait", "", goodInput)
	for name, request := range map[string]string{
		"plain":             wait,
		"through net/http":  strings.Replace(wait, "/infer ", "/infer?x=1 ", 1),
		"length twice":      infers("wait", "Content-Length: "+strconv.Itoa(len(goodInput))+"\r\n", goodInput),
		"behind a good one": "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" + infers("wait", "Content-Length: "+strconv.Itoa(len(goodInput))+"\r\n", goodInput),
	} {
		c := dial(t, address)
		c.send(request)
		if strings.HasPrefix(name, "behind") {
			if code, _, _ := c.response(); code != 200 {
				t.Errorf("%s: status %d of the good one", name, code)
			}
		}
		<-e.Waiting
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		<-e.Cancelled
		code, body, _ := c.response()
		if want := "the request was cancelled: its client has closed the connection, or its sending half"; code != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %s; want 400, %s", name, code, body, want)
		}
	}
}

// TestLateHTTP2 checks that the preface of HTTP/2 behind a request of HTTP/1.1 begins no HTTP/2, as a proxy in front would not see it.
func TestLateHTTP2(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	c := dial(t, address)
	c.send("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if code, _, _ := c.response(); code != 200 {
		t.Fatalf("status %d of the first request", code)
	}
	code, body, _ := c.response()
	if code != 505 || body != `{"error":"HTTP/2 begins with a connection, not behind HTTP/1"}` {
		t.Errorf("status %d, %s", code, body)
	}
	if rest, err := io.ReadAll(c.r); len(rest) > 0 {
		t.Errorf("then %q, %v, want the end", rest, err)
	}
}
