package conformance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificates writes an authority, a server's and a client's certificate to a folder, as ca.pem, server.pem,
// server.key, client.pem and client.key.
func writeCertificates(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	authority, authorityKey := certificate(t, folder, "ca", nil, nil)
	certificate(t, folder, "server", authority, authorityKey)
	certificate(t, folder, "client", authority, authorityKey)
	return folder
}

// certificate writes name.pem and name.key, signed by parent or by itself.
func certificate(t *testing.T, folder, name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, signer = template, key
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(folder, name+".pem"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(folder, name+".key"), "PRIVATE KEY", private)
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tlsFlags returns the flags with which both front ends require a client certificate.
func tlsFlags(folder string) []string {
	at := func(name string) string { return filepath.Join(folder, name) }
	return []string{
		"--http-use-ssl=true", "--http-use-ssl-mutual=true", "--http-server-cert=" + at("server.pem"), "--http-server-key=" + at("server.key"), "--http-root-cert=" + at("ca.pem"),
		"--grpc-use-ssl=true", "--grpc-use-ssl-mutual=true",
		"--grpc-server-cert=" + at("server.pem"), "--grpc-server-key=" + at("server.key"), "--grpc-root-cert=" + at("ca.pem"),
	}
}
