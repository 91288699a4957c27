package grpcapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// TLS names the files of encrypted connections, in PEM.
type TLS struct {
	Cert, Key string
	// Root has the certificates that those of clients are checked with.
	Root string
	// Mutual asks clients for a certificate.
	Mutual bool
}

// Credentials reads the files. They are read again when they change; while what is
// new cannot be used, what was read last is.
func (t TLS) Credentials() (credentials.TransportCredentials, error) {
	k := &keeper{files: t}
	if err := k.load(k.stamps()); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: k.config}), nil
}

// version is what tells that a file is another one.
type version struct {
	modified time.Time
	size     int64
}

// keeper keeps what the files held when they were last read.
type keeper struct {
	files TLS
	mu    sync.Mutex
	seen  [3]version  // guarded by mu
	use   *tls.Config // guarded by mu, not changed once made
}

func (k *keeper) stamps() (all [3]version) {
	for i, name := range []string{k.files.Cert, k.files.Key, k.files.Root} {
		if info, err := os.Stat(name); err == nil {
			all[i] = version{info.ModTime(), info.Size()}
		}
	}
	return all
}

// config is asked at each handshake.
func (k *keeper) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	now := k.stamps()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now != k.seen {
		// A certificate without its key yet: the next handshake tries again.
		_ = k.load(now)
	}
	return k.use, nil
}

// load reads the files; mu is held, or nobody else has k yet.
func (k *keeper) load(seen [3]version) error {
	if k.files.Cert == "" || k.files.Key == "" {
		return errors.New("TLS needs a server certificate and its key")
	}
	pair, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		return fmt.Errorf("cannot use certificate '%s' with key '%s': %w", k.files.Cert, k.files.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
	if k.files.Mutual {
		if c.ClientCAs, err = roots(k.files.Root); err != nil {
			return err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	k.use, k.seen = c, seen
	return nil
}

func roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, errors.New("mutual TLS needs a root certificate to check those of clients with")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read root certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in '%s'", file)
	}
	return pool, nil
}
