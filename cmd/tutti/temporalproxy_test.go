package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// authority signs certificates, and writes them to its folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes ca.pem to a new folder.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca", 24*time.Hour)
	return a
}

// sign writes NAME.pem and NAME.key: a certificate with the DNS name NAME. The first one signs itself and all others.
func (a *authority) sign(t *testing.T, name string, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shape := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = shape, key
		shape.IsCA, shape.BasicConstraintsValid, shape.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, shape, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	writeFile(t, a.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// proxyName is the only name in the certificate of a temporalProxy.
const proxyName = "temporal.example"

// temporalProxy is the front of a Temporal server: it ends TLS, demands a client certificate of its authority and an API key, and
// passes the calls of Temporal's API on as they are.
type temporalProxy struct {
	address string
	back    *grpc.ClientConn
	open    *openConns

	mu       sync.Mutex
	ahead    time.Duration // of its clock
	key      string        // that calls must have
	messages [][]byte      // of both directions
}

// openConns is a listener that can cut its connections.
type openConns struct {
	net.Listener

	mu   sync.Mutex
	list []net.Conn
}

// Accept implements net.Listener.
func (o *openConns) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.list = append(o.list, c)
	}
	return c, err
}

// cut closes all connections.
func (o *openConns) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.list {
		_ = c.Close()
	}
	o.list = nil
}

// newTemporalProxy starts a proxy before the Temporal server at an address.
func newTemporalProxy(t *testing.T, a *authority, to, key string) *temporalProxy {
	t.Helper()
	a.sign(t, proxyName, 24*time.Hour)
	cert, err := tls.LoadX509KeyPair(a.file(proxyName+".pem"), a.file(proxyName+".key"))
	if err != nil {
		t.Fatal(err)
	}
	back, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{})))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &temporalProxy{address: l.Addr().String(), back: back, open: &openConns{Listener: l}, key: key}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	secure := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, Time: p.now,
		SessionTicketsDisabled: true,
	})
	server := grpc.NewServer(grpc.Creds(secure), grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(p.pass))
	done := make(chan error, 1)
	go func() { done <- server.Serve(p.open) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-done, back.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *temporalProxy) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.ahead)
}

// change changes what the proxy accepts, and cuts its connections.
func (p *temporalProxy) change(set func(p *temporalProxy)) {
	p.mu.Lock()
	set(p)
	p.mu.Unlock()
	p.open.cut()
}

// saw reports whether a message had a text.
func (p *temporalProxy) saw(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.messages {
		if bytes.Contains(m, []byte(text)) {
			return true
		}
	}
	return false
}

func (p *temporalProxy) record(m []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages = append(p.messages, m)
}

// pass passes one call on. The calls of Temporal's API are unary.
func (p *temporalProxy) pass(_ any, in grpc.ServerStream) error {
	head, _ := metadata.FromIncomingContext(in.Context())
	p.mu.Lock()
	want := "Bearer " + p.key
	p.mu.Unlock()
	if got := strings.Join(head.Get("authorization"), ","); got != want {
		return status.Error(codes.Unauthenticated, "the API key has expired")
	}
	method, _ := grpc.MethodFromServerStream(in)
	var req, resp []byte
	if err := in.RecvMsg(&req); err != nil {
		return err
	}
	p.record(req)
	head = head.Copy()
	head.Delete("authorization")
	var trailer metadata.MD
	err := p.back.Invoke(metadata.NewOutgoingContext(in.Context(), head), method, &req, &resp, grpc.Trailer(&trailer))
	in.SetTrailer(trailer)
	if err != nil {
		return err
	}
	p.record(resp)
	return in.SendMsg(&resp)
}

// frames is a codec that leaves messages as they are.
type frames struct{}

var _ encoding.CodecV2 = frames{}

// Marshal implements encoding.CodecV2.
func (frames) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil //nolint:forcetypeassert // of pass
}

// Unmarshal implements encoding.CodecV2.
func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:forcetypeassert // of pass
	return nil
}

// Name implements encoding.CodecV2.
func (frames) Name() string { return "proto" }

// startTemporal starts a Temporal server with a namespace, and returns its address.
func startTemporal(t *testing.T, namespace string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := temporalCommand(ctx, temporalProgram(t), t.TempDir(), namespace)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	line := make([]byte, 0, 64)
	for one := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, one[0]) {
		if _, err := io.ReadFull(out, one); err != nil {
			t.Fatalf("tutti-temporal ended: %v", err)
		}
	}
	return strings.TrimSpace(strings.TrimPrefix(string(line), "ready "))
}
