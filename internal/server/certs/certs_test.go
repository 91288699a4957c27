package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/certs/certstest"
)

// shake has a client and a server shake hands and returns whose certificate the
// client saw, and the protocol.
func shake(t *testing.T, server, client *tls.Config) (name, protocol string, err error) {
	t.Helper()
	here, there := net.Pipe()
	defer func() { _ = errors.Join(here.Close(), there.Close()) }()
	served := make(chan error, 1)
	go func() {
		s := tls.Server(there, server)
		err := s.HandshakeContext(t.Context())
		if err != nil {
			_ = there.Close() // a client that waits for more gets its end
		}
		served <- err
	}()
	client.ServerName, client.MinVersion = "127.0.0.1", tls.VersionTLS12
	c := tls.Client(here, client)
	if err := c.HandshakeContext(t.Context()); err != nil {
		return "", "", err
	}
	go func() { _, _ = c.Read(make([]byte, 1)) }() // the server's tickets, or its alert
	state := c.ConnectionState()
	return state.PeerCertificates[0].Subject.CommonName, state.NegotiatedProtocol, <-served
}

// shows: tls.reload
func TestReload(t *testing.T) {
	t.Parallel()
	dir, start := t.TempDir(), time.Now()
	var said bytes.Buffer
	one := certstest.Write(t, dir, "one", start)
	cfg, err := certs.Load(one.Files, slog.New(slog.NewTextHandler(&said, nil)), "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	check := func(pool *x509.CertPool, want string) {
		t.Helper()
		name, protocol, err := shake(t, cfg, &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1", "h2"}})
		if err != nil || name != want || protocol != "h2" {
			t.Errorf("got %q over %q, %v, want %q over h2", name, protocol, err, want)
		}
	}
	check(one.Pool, "one")
	two := certstest.Write(t, dir, "two", start.Add(time.Minute))
	check(two.Pool, "two")
	certstest.WritePEM(t, two.Files.Key, "PRIVATE KEY", []byte("rubbish"), start.Add(time.Hour))
	check(two.Pool, "two")
	check(two.Pool, "two")
	if n := strings.Count(said.String(), "level=ERROR"); n != 1 {
		t.Errorf("the log has %d errors, want 1:\n%s", n, said.String())
	}
	if err := os.Remove(two.Files.Cert); err != nil {
		t.Fatal(err)
	}
	check(two.Pool, "two")
	three := certstest.Write(t, dir, "three", start.Add(2*time.Hour))
	check(three.Pool, "three")
}

// shows: tls.mutual
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	server, friend, stranger := certstest.Write(t, t.TempDir(), "server", now), certstest.Write(t, t.TempDir(), "friend", now),
		certstest.Write(t, t.TempDir(), "stranger", now)
	server.Files.ClientCA = friend.Files.Cert
	cfg, err := certs.Load(server.Files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]tls.Certificate{"friend": {friend.Cert}, "stranger": {stranger.Cert}, "nobody": nil} {
		_, _, err := shake(t, cfg, &tls.Config{RootCAs: server.Pool, Certificates: list})
		if (err == nil) != (name == "friend") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "one", time.Now())
	other := certstest.Write(t, t.TempDir(), "two", time.Now())
	for name, files := range map[string]certs.Files{
		"unable to load TLS certificate '' with key ''":   {},
		"unable to load TLS certificate '/nowhere'":       {Cert: "/nowhere", Key: id.Files.Key},
		"unable to load TLS certificate '":                {Cert: id.Files.Cert, Key: other.Files.Key},
		"unable to load TLS client authorities: open":     {Cert: id.Files.Cert, Key: id.Files.Key, ClientCA: "/nowhere"},
		"unable to load TLS client authorities: no certi": {Cert: id.Files.Cert, Key: id.Files.Key, ClientCA: id.Files.Key},
	} {
		if _, err := certs.Load(files, nil); err == nil || !strings.HasPrefix(err.Error(), name) || status.CodeOf(err) != status.InvalidArg {
			t.Errorf("got %v, want %s...", err, name)
		}
	}
}
