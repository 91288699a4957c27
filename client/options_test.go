package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/client"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"127.0.0.1:8000": "http://127.0.0.1:8000", "localhost:8000": "http://localhost:8000", "[::1]:8000": "http://[::1]:8000",
		"models": "http://models", "https://models/behind/": "https://models/behind/", "grpc://h:1": "grpc://h:1", "grpcs://h:1": "grpcs://h:1",
		"ftp://h": "", "http://": "", "": "", "://": "", "http://h:port": "",
	}
	for server, want := range tests {
		got, err := client.ParseURL(server)
		if want == "" {
			if err == nil {
				t.Errorf("'%s' is taken as %s", server, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("'%s' is %v, %v, want %s", server, got, err, want)
		}
	}
}

// TestHeader checks that requests have the headers of the options, including Host, besides those of the protocol.
func TestHeader(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "models.example" || strings.Join(r.Header["Team"], ",") != "a,b" {
			t.Errorf("the server sees the host %s and %v", r.Host, r.Header)
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer s.Close()
	c, err := client.DialWith(strings.TrimPrefix(s.URL, "http://"), &client.Options{Header: http.Header{"Host": {"models.example"}, "Team": {"a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if ok, err := c.Ready(t.Context()); !ok || err != nil {
		t.Errorf("Ready = %v, %v", ok, err)
	}
}

// TestProbe checks the scheme that Probe finds at a server, at a listener that never responds, and at a closed
// port.
func TestProbe(t *testing.T) {
	t.Parallel()
	plain, encrypted := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	defer encrypted.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	for address, want := range map[string]string{
		plain.Listener.Addr().String(): "http", encrypted.Listener.Addr().String(): "https", mute.Addr().String(): "",
	} {
		if got, err := client.Probe(context.Background(), address, nil); got != want || err != nil {
			t.Errorf("%s speaks '%s', %v, want '%s'", address, got, err, want)
		}
	}
	if err := mute.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Probe(context.Background(), mute.Addr().String(), nil); err == nil {
		t.Error("there is a connection to what does not listen")
	}
}

// TestRedirects checks that headers, which may have secrets, do not follow a redirect to another server.
func TestRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server got a request with the token %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	var own atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own.Add(1)
		switch r.URL.Path {
		case "/v2/models/elsewhere":
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		case "/v2/models/loop":
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	o := &client.Options{Header: http.Header{"Authorization": {"Bearer secret"}}}
	m, err := client.DialWith(server.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Metadata(t.Context(), "elsewhere"); err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL) {
		t.Errorf("the error of a redirect to another server is %v", err)
	}
	own.Store(0)
	if _, err := m.Metadata(t.Context(), "loop"); err == nil || own.Load() != 10 {
		t.Errorf("a redirect to itself is followed %d times: %v", own.Load(), err)
	}
}
