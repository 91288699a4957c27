package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// probeTime is the time within which a port must show its protocol.
const probeTime = 2 * time.Second

// ErrCertificateRequired means that a server requires a client certificate of an authority that it trusts.
var ErrCertificateRequired = errors.New("the server wants a certificate from its clients")

// Probe connects to HOST:PORT and detects its protocol: "http", "https", "grpc" or "grpcs", or "" for none of them.
// It returns an error if it cannot connect. It serves to explain a failed request, of which it sends nothing.
// identity may have the client certificate for the server; nil presents none.
func Probe(ctx context.Context, address string, identity *tls.Config) (scheme string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	first, _ := greet(ctx, conn, true)
	plain := bytes.HasPrefix(first, []byte("HTTP/"))
	switch {
	case isHTTP2(first):
		return schemeGRPC, nil
	case plain && !bytes.HasPrefix(first[8:], []byte(" 400")):
		return schemeHTTP, nil
	}
	scheme, err = probeTLS(ctx, address, identity)
	if scheme == "" && err == nil && plain { // it only refused the probe's request
		scheme = schemeHTTP
	}
	return scheme, err
}

// probeTLS is Probe within TLS. It accepts any certificate of the server.
func probeTLS(ctx context.Context, address string, identity *tls.Config) (scheme string, err error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if identity != nil {
		c = identity.Clone()
	}
	c.InsecureSkipVerify = true // nothing secret is sent, nothing received is trusted
	for _, protocol := range []string{"h2", "http/1.1"} {
		c.NextProtos = []string{protocol}
		conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
		if err != nil { // a server of gRPC alone does not speak HTTP/1.1
			continue
		}
		// An HTTP/2 server sends the first bytes, after it has checked the client's certificate.
		first, err := greet(ctx, conn, protocol != "h2")
		switch {
		case err != nil && strings.Contains(err.Error(), "certificate required"):
			return "", ErrCertificateRequired
		case isHTTP2(first):
			scheme = schemeGRPCS
		case bytes.HasPrefix(first, []byte("HTTP/")):
			scheme = schemeHTTPS
		}
	}
	return scheme, nil
}

// greetBytes is the number of bytes that identify the protocol: HTTP/1.1 and a status, or an HTTP/2 frame's header.
const greetBytes = 12

// greet returns the first bytes that a server sends, padded with zeros, and closes the connection. With ask, it
// sends an HTTP/1.1 request for the server's liveness first.
func greet(ctx context.Context, conn net.Conn, ask bool) ([]byte, error) {
	defer func() { _ = conn.Close() }()
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at)
	}
	b := make([]byte, greetBytes)
	if ask {
		if _, err := io.WriteString(conn, "GET /v2/health/live HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"); err != nil {
			return b, err
		}
	}
	_, err := io.ReadFull(conn, b)
	return b, err
}

// isHTTP2 reports whether bytes begin an HTTP/2 connection: with a SETTINGS frame of stream 0.
func isHTTP2(b []byte) bool {
	const settings = 4
	return b[0] == 0 && b[3] == settings && bytes.Equal(b[5:9], make([]byte, 4))
}
