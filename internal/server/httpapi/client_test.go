package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// client sends requests unchanged: Go's default client adds Accept-Encoding.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}}

// listen starts a server on a socket.
func listen(t *testing.T, change ...func(*httpapi.Settings)) (address string, e *servertest.Echo) {
	t.Helper()
	e = servertest.NewEcho()
	set := httpapi.Settings{Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil), Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&set)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.New(set)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := errors.Join(s.Shutdown(over), <-served); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return l.Addr().String(), e
}

// connection is a client connection on which the test writes bytes.
type connection struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

func dial(t *testing.T, address string) *connection {
	t.Helper()
	c, err := net.Dial("tcp", address) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &connection{c, bufio.NewReader(c), t}
}

// send writes text.
func (c *connection) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// response reads a response. closing reports whether the server closes the connection after it.
func (c *connection) response() (code int, body string, closing bool) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, b.String(), resp.Close
}

const (
	goodInput  = `{"inputs":[{"name":"X","shape":[1],"datatype":"INT32","data":[5]}]}`
	goodAnswer = `{"model_name":"echo","model_version":"1","outputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[5]}]}`
	inferPath  = "/v2/models/echo/infer"
)
