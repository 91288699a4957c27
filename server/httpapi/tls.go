package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tutti/core/status"
)

// TLSFiles names the PEM files of a listener's identity.
type TLSFiles struct {
	Cert, Key string
	// ClientCA, when not empty, has the authorities one of which must have signed
	// every client's certificate.
	ClientCA string
}

// recheck is how old what is known of the files may be.
const recheck = time.Second

// LoadTLS returns a configuration for Settings.TLS, or for any other listener of
// HTTP/2 or HTTP/1. It follows the files: a handshake that comes after they have
// changed sees what they hold then. When that cannot be used the one before stays,
// which log is told once.
func LoadTLS(f TLSFiles, log *slog.Logger) (*tls.Config, error) { return loadTLS(f, log, time.Now) }

func loadTLS(f TLSFiles, log *slog.Logger, now func() time.Time) (*tls.Config, error) {
	k := &keys{files: f, log: log, now: now}
	k.seen = f.stamps()
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	k.current.Store(cfg)
	k.checked.Store(now().UnixNano())
	// What holds for all connections is said here, too, for servers that look at it.
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: cfg.NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.latest(), nil
		},
	}, nil
}

// keys is what the files held when they could last be used.
type keys struct {
	files   TLSFiles
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[tls.Config]
	checked atomic.Int64 // when the files were last looked at, in nanoseconds of Unix time

	mu   sync.Mutex
	seen [3]stamp // guarded by mu
}

// stamp tells one state of a file from another.
type stamp struct {
	time time.Time
	size int64
}

// latest returns the configuration for a handshake. Only one of those under way at a
// time looks at the files, the others take what there is.
func (k *keys) latest() *tls.Config {
	if k.now().UnixNano()-k.checked.Load() >= int64(recheck) && k.mu.TryLock() {
		k.reload()
		k.mu.Unlock()
	}
	return k.current.Load()
}

// reload reads the files if they have changed; mu is held.
func (k *keys) reload() {
	k.checked.Store(k.now().UnixNano())
	stamps := k.files.stamps()
	if stamps == k.seen {
		return
	}
	k.seen = stamps
	cfg, err := k.files.load()
	switch {
	case err == nil:
		k.current.Store(cfg)
		if k.log != nil {
			k.log.Info("reloaded the TLS certificate", slog.String("file", k.files.Cert))
		}
	case k.log != nil:
		k.log.Error("the changed TLS files cannot be used, those before stay in use", slog.String("error", err.Error()))
	}
}

func (f *TLSFiles) stamps() (list [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			list[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return list
}

func (f *TLSFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unable to load TLS certificate '%s' with key '%s': %w", f.Cert, f.Key, err)
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
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
