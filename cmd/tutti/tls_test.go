package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"tutti/proto/inference"
)

// TestTLS serves both protocols encrypted, and only to those whose certificate is known.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	args := []string{"--model-repository", t.TempDir()}
	for _, name := range []string{"http", "grpc"} {
		args = append(args, "--"+name+"-use-ssl-mutual=true", "--"+name+"-server-cert="+cert, "--"+name+"-server-key="+key, "--"+name+"-root-cert="+cert)
	}
	a := serve(t, args...)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	known := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	unknown := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	for _, ask := range []func(*testing.T, addresses, *tls.Config) error{askHTTPS, askGRPCS} {
		if err := ask(t, a, known); err != nil {
			t.Error(err)
		}
		if err := ask(t, a, unknown); err == nil {
			t.Error("a client without a certificate was answered")
		}
	}
}

func askHTTPS(t *testing.T, a addresses, c *tls.Config) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + a.http + "/v2/health/live") //nolint:noctx // ends with the server
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func askGRPCS(t *testing.T, a addresses, c *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = inference.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &inference.ServerLiveRequest{})
	return err
}

// selfSigned writes a certificate of this machine that is its own authority, and its key.
func selfSigned(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return certFile, keyFile
}
