package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/certs/certstest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// hello requests the liveness of a server over a new connection and returns the protocol of the response.
func hello(t *testing.T, address string, cfg *tls.Config, p *http.Protocols) (proto string, err error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: cfg, Protocols: p}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr}
	scheme := "https"
	if cfg == nil {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", scheme+"://"+address+inferPath, strings.NewReader(goodInput))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != goodAnswer {
		t.Errorf("response %s, %v", b, err)
	}
	return resp.Proto, nil
}

func protocols(set func(*http.Protocols, bool)) *http.Protocols {
	p := new(http.Protocols)
	set(p, true)
	return p
}

// TestProtocols uses HTTP/1.1 and HTTP/2, in clear text and over TLS.
//
// shows: http.protocols
func TestProtocols(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "one", time.Now())
	cfg, err := certs.Load(id.Files, nil, "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	secure, _ := listen(t, func(set *httpapi.Settings) { set.TLS = cfg })
	plain, _ := listen(t)
	trust := &tls.Config{RootCAs: id.Pool}
	for _, tt := range []struct {
		address string
		tls     *tls.Config
		p       *http.Protocols
		want    string
	}{
		{plain, nil, protocols((*http.Protocols).SetHTTP1), "HTTP/1.1"},
		{plain, nil, protocols((*http.Protocols).SetUnencryptedHTTP2), "HTTP/2.0"},
		{secure, trust, protocols((*http.Protocols).SetHTTP1), "HTTP/1.1"},
		{secure, trust, protocols((*http.Protocols).SetHTTP2), "HTTP/2.0"},
	} {
		if proto, err := hello(t, tt.address, tt.tls.Clone(), tt.p); err != nil || proto != tt.want {
			t.Errorf("%s with TLS %v: got %q, %v", tt.want, tt.tls != nil, proto, err)
		}
	}
}

// TestHTTP2Large sends a tensor larger than any window, and one that is rejected while it is sent.
func TestHTTP2Large(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.MaxInput = 9 << 20 })
	tr := &http.Transport{Protocols: protocols((*http.Protocols).SetUnencryptedHTTP2)}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr}
	body, length := binaryRequest(2 << 20)
	for model, want := range map[string]int{"echo": 200, "nope": 400} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/v2/models/"+model+"/infer", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(lengthHeader, strconv.Itoa(length))
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want || want == 200 && !bytes.HasSuffix(got, body[length:]) {
			t.Errorf("%s: status %d, %d bytes, %v", model, resp.StatusCode, len(got), err)
		}
	}
}

// shows: tls.mutual
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	server, friend, stranger := certstest.Write(t, t.TempDir(), "server", time.Now()), certstest.Write(t, t.TempDir(), "friend", time.Now()),
		certstest.Write(t, t.TempDir(), "stranger", time.Now())
	server.Files.ClientCA = friend.Files.Cert
	cfg, err := certs.Load(server.Files, nil)
	if err != nil {
		t.Fatal(err)
	}
	address, _ := listen(t, func(set *httpapi.Settings) { set.TLS = cfg })
	for name, certs := range map[string][]tls.Certificate{"friend": {friend.Cert}, "stranger": {stranger.Cert}, "nobody": nil} {
		_, err := hello(t, address, &tls.Config{RootCAs: server.Pool, Certificates: certs}, nil)
		if (err == nil) != (name == "friend") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
