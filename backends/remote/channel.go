package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// channel is the connections to one endpoint. Models with the same settings share it. It is safe for concurrent use.
type channel struct {
	key   string
	set   *settings
	users int // models; guarded by backend.mu
	conns []*grpc.ClientConn
	next  atomic.Uint32
	watch *watcher
	log   *slog.Logger

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	models []*model // guarded by mu
}

// newChannel opens the connections, which connect in the background.
func newChannel(set *settings, key string, log *slog.Logger) (*channel, error) {
	c := &channel{key: key, set: set, log: log, watch: newWatcher()}
	for range set.connections {
		conn, err := set.dial(c.watch, serving)
		if err != nil {
			c.closeConns()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		conn.Connect()
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.done.Go(func() { c.check(ctx) })
	return c, nil
}

// conn returns the connections in turn.
func (c *channel) conn() *grpc.ClientConn {
	if len(c.conns) == 1 {
		return c.conns[0]
	}
	return c.conns[c.next.Add(1)%uint32(len(c.conns))]
}

// close closes the connections. No model uses them.
func (c *channel) close() {
	c.cancel()
	c.done.Wait()
	c.closeConns()
}

func (c *channel) closeConns() {
	for _, conn := range c.conns {
		_ = conn.Close() // it fails only when it is closed already
	}
}

// register adds a model, whose metadata are compared after each reconnect from now on.
func (c *channel) register(m *model) {
	c.mu.Lock()
	c.models = append(c.models, m)
	c.mu.Unlock()
	c.watch.recheck()
}

func (c *channel) unregister(m *model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.models = slices.DeleteFunc(c.models, func(x *model) bool { return x == m })
}

func (c *channel) registered() []*model {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.models)
}

// window is how many bytes of a response an endpoint may send before they are read.
const window = 4 << 20

// recheckPeriod is how long an address with other metadata waits for its next comparison.
const recheckPeriod = 2 * time.Second

// check compares the metadata of the models with those at each address that a connection was opened to, until they agree.
func (c *channel) check(ctx context.Context) {
	tick := time.NewTicker(recheckPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.watch.wake:
		case <-tick.C:
		}
		for addr, opened := range c.watch.unchecked() {
			if !c.checkAddress(ctx, addr, opened) {
				c.watch.again(addr)
			}
		}
	}
}

// checkAddress compares the models with those at one address, and reports whether all agree. opened numbers its last connection:
// a model that agreed since then is not compared again.
func (c *channel) checkAddress(ctx context.Context, addr string, opened int) (agree bool) {
	defer func() {
		if p := recover(); p != nil {
			_ = recovery.Report(p, c.log, "backend 'remote'")
		}
	}()
	models := slices.DeleteFunc(c.registered(), func(m *model) bool { return m.agrees(addr, opened) })
	if len(models) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, c.set.loadTimeout)
	defer cancel()
	conn, err := c.set.at(addr).dial(nil, probing)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	agree = true
	for _, m := range models {
		far, err := describe(ctx, conn, m.set)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			err = m.compare(far, addr)
		}
		agree = agree && err == nil
		m.judge(addr, opened, err)
	}
	return agree
}

// at returns the settings of one address of the endpoint.
func (s *settings) at(addr string) *settings {
	one := *s
	if one.serverName == "" && one.addresses() == nil && !strings.HasPrefix(addr, "unix:") {
		one.serverName = host(s.endpoint)
	}
	one.endpoint = addr
	if !strings.HasPrefix(addr, "unix:") {
		one.endpoint = "passthrough:///" + addr
	}
	return &one
}

// host returns the host of a target such as dns:///HOST:PORT.
func host(endpoint string) string {
	if i := strings.LastIndexByte(endpoint, '/'); i >= 0 {
		endpoint = endpoint[i+1:]
	}
	if h, _, err := net.SplitHostPort(endpoint); err == nil {
		return h
	}
	return endpoint
}

// purpose is what a connection is for.
type purpose int

const (
	serving purpose = iota // requests: balanced, with retries and health checks
	probing                // metadata, which a server has before it is healthy
)

// dial returns a connection to the endpoint, which does not connect before its first use. w may be nil.
func (s *settings) dial(w *watcher, p purpose) (*grpc.ClientConn, error) {
	options, err := s.security()
	if err != nil {
		return nil, err
	}
	calls := []grpc.CallOption{
		grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.MaxCallSendMsgSize(s.maxMessage),
	}
	if s.compression == gzip.Name {
		calls = append(calls, grpc.UseCompressor(gzip.Name))
	}
	if s.idempotent {
		calls = append(calls, grpc.MaxRetryRPCBufferSize(s.maxMessage))
	}
	options = append(options,
		grpc.WithDefaultCallOptions(calls...),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.keepalive, Timeout: s.keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithIdleTimeout(0),
		// With windows of its own choice grpc sends a ping with nearly every response, to learn how large they should be.
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2*window),
		grpc.WithUserAgent("tutti"),
	)
	if s.controlled() { // the control plane's service config counts; it may not repeat what must not be repeated
		if !s.idempotent {
			options = append(options, grpc.WithDisableRetry())
		}
	} else {
		options = append(options, grpc.WithDisableServiceConfig()) // only that of the parameters counts
		if p == serving {
			options = append(options, grpc.WithDefaultServiceConfig(s.serviceConfig()))
		}
	}
	if w != nil {
		options = append(options, grpc.WithContextDialer(w.dial))
	}
	target := s.endpoint
	if list := s.addresses(); list != nil {
		builder := manual.NewBuilderWithScheme("static")
		var state resolver.State
		for _, a := range list {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a, ServerName: s.nameOf(a)}}})
		}
		builder.InitialState(state)
		options, target = append(options, grpc.WithResolvers(builder)), "static:///"+list[0]
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "endpoint '%s': %w", s.endpoint, err)
	}
	return conn, nil
}

// nameOf returns the name that the certificate of an address must have.
func (s *settings) nameOf(addr string) string {
	if s.serverName != "" {
		return s.serverName
	}
	return addr
}

// security returns the options of credentials.
func (s *settings) security() ([]grpc.DialOption, error) {
	if !s.tls {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.serverName}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "cannot read the authorities of parameter 'tls_ca': %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, status.Errorf(status.InvalidArg, "file '%s' of parameter 'tls_ca' has no certificate in PEM", s.ca)
		}
	}
	if s.cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.cert, s.key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, status.Errorf(status.InvalidArg, "cannot use the files of parameters 'tls_cert' and 'tls_key': %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(c))}
	if s.authorization != "" {
		a := &authorization{path: s.authorization}
		if _, err := a.value(time.Now()); err != nil {
			return nil, status.Errorf(status.InvalidArg, "parameter 'authorization_file': %w", err)
		}
		options = append(options, grpc.WithPerRPCCredentials(a))
	}
	return options, nil
}

// authorization adds the header of a file to every call. It implements credentials.PerRPCCredentials.
type authorization struct {
	path string

	mu    sync.Mutex
	text  string    // guarded by mu
	until time.Time // when the file is read again; guarded by mu
}

// value returns the content of the file, which it reads at most once a second.
func (a *authorization) value(now time.Time) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.until) {
		return a.text, nil
	}
	b, err := os.ReadFile(a.path)
	text := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", err
	case text == "" || strings.ContainsAny(text, "\r\n"):
		return "", fmt.Errorf("file '%s' has %d lines, expected one, for example 'Bearer TOKEN'", a.path, len(strings.Fields(text)))
	}
	a.text, a.until = text, now.Add(time.Second)
	return text, nil
}

// GetRequestMetadata returns the header.
func (a *authorization) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := a.value(time.Now())
	return map[string]string{"authorization": text}, err
}

// RequireTransportSecurity forbids to send the header in clear text.
func (*authorization) RequireTransportSecurity() bool { return true }
