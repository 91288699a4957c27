// Package certs makes the TLS configuration of a listener from PEM files and has it
// follow them while they change.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// Files names the PEM files of a listener's identity.
type Files struct {
	Cert, Key string
	// ClientCA, when not empty, has the authorities one of which must have signed
	// every client's certificate.
	ClientCA string
}

// Load returns a listener's configuration for these protocols, preferred ones first
// and as TLS names them ("h2"). A handshake that comes after the files have changed
// sees what they hold then. When that cannot be used the one before stays, which log,
// if there is one, is told once. The error is InvalidArg and names the file.
func Load(f Files, log *slog.Logger, protocols ...string) (*tls.Config, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &keys{files: f, protocols: protocols, log: log, seen: f.stamps()}
	cfg, err := k.load()
	if err != nil {
		return nil, err
	}
	k.current.Store(cfg)
	// What holds for all connections is said here, too, for servers that look at it.
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.latest(), nil
		},
	}, nil
}

// keys is what the files held when they could last be used.
type keys struct {
	files     Files
	protocols []string
	log       *slog.Logger
	current   atomic.Pointer[tls.Config]

	mu   sync.Mutex
	seen [3]stamp // guarded by mu
}

// stamp tells one state of a file from another.
type stamp struct {
	time time.Time
	size int64
}

// latest returns the configuration for a handshake, beside which a look at the files
// costs nothing. Of handshakes at the same time one looks, the others take what there is.
func (k *keys) latest() *tls.Config {
	if k.mu.TryLock() {
		k.reload()
		k.mu.Unlock()
	}
	return k.current.Load()
}

// reload reads the files if they have changed; mu is held.
func (k *keys) reload() {
	stamps := k.files.stamps()
	if stamps == k.seen {
		return
	}
	k.seen = stamps
	cfg, err := k.load()
	if err != nil {
		k.log.Error("the changed TLS files cannot be used, those before stay in use", slog.String("error", err.Error()))
		return
	}
	k.current.Store(cfg)
	k.log.Info("reloaded the TLS certificate", slog.String("file", k.files.Cert))
}

func (f *Files) stamps() (list [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			list[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return list
}

func (k *keys) load() (*tls.Config, error) {
	f := &k.files
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unable to load TLS certificate '%s' with key '%s': %w", f.Cert, f.Key, err)
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   k.protocols,
		Certificates: []tls.Certificate{cert},
	}
	if f.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unable to load TLS client authorities: %w", err)
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, status.Errorf(status.InvalidArg, "unable to load TLS client authorities: no certificate in '%s'", f.ClientCA)
	}
	return cfg, nil
}
