package httpapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tutti/server/httpapi"
)

// identity is a certificate of its own making, in files.
type identity struct {
	files httpapi.TLSFiles
	pool  *x509.CertPool
	cert  tls.Certificate
}

// writeIdentity makes a certificate that is its own authority and writes it, dated at when.
func writeIdentity(t *testing.T, dir, name string, when time.Time) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shape := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, shape, shape, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{pool: x509.NewCertPool()}
	id.files.Cert = writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", der, when)
	id.files.Key = writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", private, when)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	id.pool.AddCert(cert)
	id.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return id
}

func writePEM(t *testing.T, path, kind string, der []byte, when time.Time) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
	return path
}

// hello asks a server for its liveness over a connection of its own and returns the
// protocol and whose certificate it showed.
func hello(t *testing.T, address string, cfg *tls.Config, p *http.Protocols) (proto, name string, err error) {
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
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != goodAnswer {
		t.Errorf("answer %s, %v", b, err)
	}
	if resp.TLS != nil {
		name = resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	return resp.Proto, name, nil
}

func protocols(set func(*http.Protocols, bool)) *http.Protocols {
	p := new(http.Protocols)
	set(p, true)
	return p
}

// TestProtocols speaks HTTP/1.1 and HTTP/2, in clear text and over TLS.
//
// shows: http.protocols
func TestProtocols(t *testing.T) {
	t.Parallel()
	id := writeIdentity(t, t.TempDir(), "one", time.Now())
	cfg, err := httpapi.LoadTLS(id.files, nil)
	if err != nil {
		t.Fatal(err)
	}
	secure, _ := listen(t, func(set *httpapi.Settings) { set.TLS = cfg })
	plain, _ := listen(t)
	trust := &tls.Config{RootCAs: id.pool}
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
		if proto, _, err := hello(t, tt.address, tt.tls.Clone(), tt.p); err != nil || proto != tt.want {
			t.Errorf("%s with TLS %v: got %q, %v", tt.want, tt.tls != nil, proto, err)
		}
	}
}

// TestHTTP2Large sends a tensor larger than any window, and is refused in the midst of one.
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
	server, friend, stranger := writeIdentity(t, t.TempDir(), "server", time.Now()), writeIdentity(t, t.TempDir(), "friend", time.Now()),
		writeIdentity(t, t.TempDir(), "stranger", time.Now())
	server.files.ClientCA = friend.files.Cert
	cfg, err := httpapi.LoadTLS(server.files, nil)
	if err != nil {
		t.Fatal(err)
	}
	address, _ := listen(t, func(set *httpapi.Settings) { set.TLS = cfg })
	for name, certs := range map[string][]tls.Certificate{"friend": {friend.cert}, "stranger": {stranger.cert}, "nobody": nil} {
		_, _, err := hello(t, address, &tls.Config{RootCAs: server.pool, Certificates: certs}, nil)
		if (err == nil) != (name == "friend") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReloadTLS changes the files of a running server, for good and for bad.
//
// shows: tls.reload
func TestReloadTLS(t *testing.T) {
	t.Parallel()
	dir, start := t.TempDir(), time.Now()
	var clock atomic.Int64
	clock.Store(start.UnixNano())
	var said bytes.Buffer
	one := writeIdentity(t, dir, "one", start)
	cfg, err := httpapi.LoadTLSAt(one.files, slog.New(slog.NewTextHandler(&said, nil)), func() time.Time { return time.Unix(0, clock.Load()) })
	if err != nil {
		t.Fatal(err)
	}
	address, _ := listen(t, func(set *httpapi.Settings) { set.TLS = cfg })
	check := func(after time.Duration, pool *x509.CertPool, want string) {
		t.Helper()
		clock.Store(start.Add(after).UnixNano())
		if _, name, err := hello(t, address, &tls.Config{RootCAs: pool}, nil); err != nil || name != want {
			t.Errorf("after %s: got %q, %v, want %q", after, name, err, want)
		}
	}
	check(0, one.pool, "one")
	two := writeIdentity(t, dir, "two", start.Add(time.Minute))
	check(time.Second/2, one.pool, "one")
	check(2*time.Second, two.pool, "two")
	writePEM(t, two.files.Key, "PRIVATE KEY", []byte("rubbish"), start.Add(time.Hour))
	check(4*time.Second, two.pool, "two")
	check(6*time.Second, two.pool, "two")
	if n := strings.Count(said.String(), "level=ERROR"); n != 1 {
		t.Errorf("the log has %d errors, want 1:\n%s", n, said.String())
	}
	if err := os.Remove(two.files.Cert); err != nil {
		t.Fatal(err)
	}
	check(8*time.Second, two.pool, "two")
	three := writeIdentity(t, dir, "three", start.Add(2*time.Hour))
	check(10*time.Second, three.pool, "three")
}

func TestLoadTLSErrors(t *testing.T) {
	t.Parallel()
	id := writeIdentity(t, t.TempDir(), "one", time.Now())
	other := writeIdentity(t, t.TempDir(), "two", time.Now())
	for name, files := range map[string]httpapi.TLSFiles{
		"unable to load TLS certificate '/nowhere'":       {Cert: "/nowhere", Key: id.files.Key},
		"unable to load TLS certificate '":                {Cert: id.files.Cert, Key: other.files.Key},
		"unable to load TLS client authorities: open":     {Cert: id.files.Cert, Key: id.files.Key, ClientCA: "/nowhere"},
		"unable to load TLS client authorities: no certi": {Cert: id.files.Cert, Key: id.files.Key, ClientCA: id.files.Key},
	} {
		if _, err := httpapi.LoadTLS(files, nil); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want %s...", err, name)
		}
	}
}
