// Package certstest makes certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/server/certs"
)

// Identity is a self-signed certificate for 127.0.0.1.
type Identity struct {
	// Files are the paths of certificate and key.
	Files certs.Files
	// Pool has the certificate as an authority.
	Pool *x509.CertPool
	// Cert is the certificate with its key.
	Cert tls.Certificate
}

// Write creates an identity and writes it to cert.pem and key.pem with the modification time when. Tests that renew a
// certificate pass distinct times, since two quick writes can get the same one.
func Write(tb testing.TB, dir, name string, when time.Time) Identity {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	shape := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, shape, shape, key.Public(), key)
	must(tb, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(tb, err)
	leaf, err := x509.ParseCertificate(der)
	must(tb, err)
	id := Identity{
		Files: certs.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")},
		Pool:  x509.NewCertPool(),
		Cert:  tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
	}
	id.Pool.AddCert(leaf)
	WritePEM(tb, id.Files.Cert, "CERTIFICATE", der, when)
	WritePEM(tb, id.Files.Key, "PRIVATE KEY", private, when)
	return id
}

// WritePEM writes a file with one block and the modification time when.
func WritePEM(tb testing.TB, path, kind string, content []byte, when time.Time) {
	tb.Helper()
	must(tb, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
	must(tb, os.Chtimes(path, when, when))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
