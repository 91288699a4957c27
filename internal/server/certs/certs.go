// Package certs builds a listener's TLS configuration from PEM files and reloads them when they change, so that a renewed
// certificate needs no restart.
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
	// ClientCA, when not empty, names the authorities of client certificates. Every client must then present a certificate
	// that one of them has signed.
	ClientCA string
}

// Load returns a listener's configuration for the given protocols, in order of preference and by their TLS names, for example
// "h2", "http/1.1". Each handshake uses the files' current content. When that is unusable, the last usable content stays in
// use, and log, which may be nil, gets one error. Errors have the code InvalidArg and name the file.
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
	// Servers that inspect the configuration find the settings of all connections here, too.
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.latest(), nil },
	}, nil
}

// keys caches the last usable content of the files.
type keys struct {
	files     Files
	protocols []string
	log       *slog.Logger
	current   atomic.Pointer[tls.Config]

	mu   sync.Mutex
	seen [3]stamp // guarded by mu
}

// stamp identifies a state of a file.
type stamp struct {
	time time.Time
	size int64
}

// latest returns the configuration for a handshake. The files are checked each time, which is cheap beside a handshake. One of
// several concurrent handshakes checks; the others use the cached content.
func (k *keys) latest() *tls.Config {
	if k.mu.TryLock() {
		k.reload()
		k.mu.Unlock()
	}
	return k.current.Load()
}

// reload reads the files if they have changed. The caller must hold mu.
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
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: k.protocols, Certificates: []tls.Certificate{cert}}
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
