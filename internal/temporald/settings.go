// Package temporald connects a server to Temporal: to the Temporal server of an address, or to one of this machine, the
// program tutti-temporal, which it starts as a child below the data directory and keeps running. Several processes with
// the same data directory share one: the first starts it, and when that process ends, another starts it again.
//
// For example:
//
//	c, err := temporald.Open(temporald.Settings{DataDir: "/var/lib/tutti", Namespace: "default"})
//	...
//	defer c.Close(ctx)
//	c.Client().ExecuteWorkflow(...)
package temporald

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
)

// DefaultNamespace is the namespace that tutti-temporal registers.
const DefaultNamespace = "default"

// Settings select a Temporal server. The names of options in errors are those of `tutti serve`.
type Settings struct {
	Address   string // HOST:PORT of a Temporal server; empty for one on this machine
	Namespace string
	TLS       TLS
	// APIKeyFile is a file with an API key, which is read again when it changes. It enables TLS.
	APIKeyFile string
	// CodecKeyFile is a file with the keys that encrypt payloads, see Codec; empty to store them as they are.
	CodecKeyFile string
	DataDir      string // the folder of the Temporal server of this machine
	// Program is the path of tutti-temporal; empty for the one beside this executable, or else in PATH.
	Program string
	Log     *slog.Logger // nil: nothing is logged
}

// TLS configures an encrypted connection. Any file or name enables it.
type TLS struct {
	Enabled    bool
	CA         string // PEM file of the authorities of the server's certificate; empty for those of the system
	Cert, Key  string // PEM files of this client's certificate, which are read for each connection
	ServerName string // the name in the server's certificate, if the address has another
}

func (t *TLS) enabled() bool {
	return t.Enabled || t.CA != "" || t.Cert != "" || t.Key != "" || t.ServerName != ""
}

// Connection is a connection to Temporal. It is safe for concurrent use.
type Connection struct {
	client client.Client
	codec  converter.PayloadCodec
	last   failures
	child  *child // nil with an address
	once   sync.Once
}

// Open checks the settings and returns a connection; it does not wait for the Temporal server, which may be away. It fails
// if a file cannot be used, or if there is no address and the program tutti-temporal is not found.
func Open(s Settings) (*Connection, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	c := &Connection{}
	options := client.Options{HostPort: s.Address, Namespace: s.Namespace, Logger: &sdkLog{sdklog.NewStructuredLogger(s.Log)}}
	if s.CodecKeyFile != "" {
		codec, err := ReadCodec(s.CodecKeyFile)
		if err != nil {
			return nil, option("temporal-codec-key-file", err)
		}
		c.codec = codec
		options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	}
	var err error
	if s.Address == "" {
		err = s.local(c, &options)
	} else {
		options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.last.record)}
		err = s.remote(&options)
	}
	if err != nil {
		return nil, err
	}
	if c.client, err = client.NewLazyClient(options); err != nil {
		return nil, errors.Join(status.Errorf(status.InvalidArg, "the connection to Temporal: %w", err), c.Close(context.Background()))
	}
	return c, nil
}

// remote completes the options for a server that others run.
func (s *Settings) remote(o *client.Options) error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil {
		return option("temporal-address", fmt.Errorf("'%s' is not HOST:PORT, for example temporal.example.com:7233: %w", s.Address, err))
	}
	if s.APIKeyFile != "" {
		key := &apiKey{file: s.APIKeyFile}
		if _, err := key.get(context.Background()); err != nil {
			return err
		}
		o.Credentials = client.NewAPIKeyDynamicCredentials(key.get)
	}
	if !s.TLS.enabled() && s.APIKeyFile == "" {
		return nil
	}
	cfg, err := s.TLS.config()
	o.ConnectionOptions.TLS = cfg
	return err
}

// local starts to supervise the server of this machine, and completes the options for it.
func (s *Settings) local(c *Connection, o *client.Options) error {
	if s.TLS.enabled() || s.APIKeyFile != "" {
		return status.Errorf(status.InvalidArg, "--temporal-tls* and --temporal-api-key-file are for the server of --temporal-address, which is missing: "+
			"the Temporal server of --data-dir listens on the loopback interface without either")
	}
	program, err := find(s.Program)
	if err != nil {
		return err
	}
	if c.child, err = supervise(program, s.DataDir, s.Namespace, s.Log); err != nil {
		return err
	}
	o.HostPort = "passthrough:///" + programName
	o.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithContextDialer(c.child.dial)}
	return nil
}

// config reads the files of a TLS configuration.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, option("temporal-tls-ca", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, option("temporal-tls-ca", fmt.Errorf("'%s' has no certificate in PEM", t.CA))
		}
	}
	if t.Cert == "" && t.Key == "" {
		return c, nil
	}
	if t.Cert == "" || t.Key == "" {
		return nil, status.Errorf(status.InvalidArg, "--temporal-tls-cert and --temporal-tls-key belong together: give both, or neither")
	}
	read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		return &pair, err
	}
	if _, err := read(nil); err != nil {
		return nil, option("temporal-tls-cert", err)
	}
	c.GetClientCertificate = read
	return c, nil
}

// option is the error of an option.
func option(name string, err error) error {
	return status.Errorf(status.InvalidArg, "--%s: %w", name, err)
}

// Client returns the client, which connects when it is used. Calls fail while the Temporal server is away.
func (c *Connection) Client() client.Client { return c.client }

// Codec returns the codec of payloads, nil for none. The client has it already.
func (c *Connection) Codec() converter.PayloadCodec { return c.codec }

// Failure returns the error of the last call if the Temporal server of an address was away or refused it, or that the disk of the Temporal
// server of a folder is full, and nil otherwise. The client tries such calls again until their deadline, and then returns only that.
func (c *Connection) Failure() error {
	if err := c.Full(); err != nil {
		return err
	}
	return c.last.err()
}

// Full returns an error while the disk of the folder in which the Temporal server stores everything is full; nil for a server with an address.
// The server tries again by itself what it could not store.
func (c *Connection) Full() error {
	if c.child == nil {
		return nil
	}
	return diskfull.Low(filepath.Join(c.child.dir, "temporal"), "name a folder of another disk with --data-dir")
}

// Close closes the client, and ends the Temporal server if this process started it: in order, or when ctx is done at once.
func (c *Connection) Close(ctx context.Context) error {
	var err error
	c.once.Do(func() {
		if c.client != nil {
			c.client.Close()
		}
		if c.child != nil {
			err = c.child.close(ctx)
		}
	})
	return err
}

// apiKey reads an API key when its file has changed.
type apiKey struct {
	file string

	mu      sync.Mutex
	key     string
	changed time.Time
	size    int64
}

func (k *apiKey) get(context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.file)
	if err != nil {
		return "", option("temporal-api-key-file", err)
	}
	if k.key != "" && info.ModTime().Equal(k.changed) && info.Size() == k.size {
		return k.key, nil
	}
	text, err := os.ReadFile(k.file)
	if err != nil {
		return "", option("temporal-api-key-file", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \r\n") {
		return "", option("temporal-api-key-file", fmt.Errorf("'%s' has no API key: expected one line", k.file))
	}
	k.key, k.changed, k.size = key, info.ModTime(), info.Size()
	return key, nil
}

// sdkLog leaves out the SDK's messages about single calls, which return the same as an error.
type sdkLog struct{ sdklog.Logger }

// Info implements the Logger of the SDK.
func (*sdkLog) Info(string, ...any) {}

// Debug implements the Logger of the SDK.
func (*sdkLog) Debug(string, ...any) {}
