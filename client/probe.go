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

// probeTime bounds how long a port may take to show what it speaks.
const probeTime = 2 * time.Second

// ErrCertificateRequired says that a server answers only clients that present a
// certificate of an authority that it knows.
var ErrCertificateRequired = errors.New("the server wants a certificate from its clients")

// Probe connects to HOST:PORT and finds out what is spoken there: it returns "http",
// "https", "grpc" or "grpcs", or "" for none of them. The error says why there is no
// connection. It is for explaining a failed request, and sends nothing of it. identity
// may hold the certificate that the server asks for; nil presents none.
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
	if scheme == "" && err == nil && plain { // it only refuses what it was asked
		scheme = schemeHTTP
	}
	return scheme, err
}

// probeTLS is Probe within TLS. Whose certificate the server has does not matter.
func probeTLS(ctx context.Context, address string, identity *tls.Config) (scheme string, err error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if identity != nil {
		c = identity.Clone()
	}
	c.InsecureSkipVerify = true // nothing is sent or believed
	for _, protocol := range []string{"h2", "http/1.1"} {
		c.NextProtos = []string{protocol}
		conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
		if err != nil { // a server of gRPC alone does not speak HTTP/1.1
			continue
		}
		// A server that speaks HTTP/2 begins, after it has looked at the client's certificate.
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

// greetBytes is how much of an answer tells what is spoken: HTTP/1.1 and a status, or the head of an HTTP/2 frame.
const greetBytes = 12

// greet returns how a server begins, filled up with zeros, and closes the connection. It
// may ask in HTTP/1.1 whether the server lives.
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

// isHTTP2 reports whether bytes begin a connection of HTTP/2: with a SETTINGS frame of stream 0.
func isHTTP2(b []byte) bool {
	const settings = 4
	return b[0] == 0 && b[3] == settings && bytes.Equal(b[5:9], make([]byte, 4))
}
