// Package redis stores responses in a Redis server, which several servers may share and which outlives them.
//
// A slow or dead Redis server costs little: a lookup that exceeds the socket timeout is a miss, and after the first
// failure no request is looked up until the server responds to a probe. For example, with socket_timeout=100 the
// requests in flight wait at most 100 ms for a dead server; later ones do not wait. A separate goroutine sends
// responses to the server; responses that it cannot keep up with are dropped.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/faults"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Settings are the parameters of New.
type Settings struct {
	Config     Config
	Alloc      tensor.Allocator // Alloc allocates the tensors of responses, on the host
	Log        *slog.Logger
	ProbeEvery time.Duration // the interval of attempts to reconnect to a server that failed; 0 for a second

	_ struct{}
}

// Cache stores responses in a Redis server. It is safe for concurrent use.
type Cache struct {
	s      Settings
	client atomic.Pointer[rueidis.Client] // nil while the server does not respond
	lost   atomic.Pointer[error]          // why it does not; nil before the first attempt
	jobs   chan job
	failed chan struct{} // a lookup or an insertion failed
	stop   context.CancelFunc
	wg     sync.WaitGroup

	lookups, hits, dropped, faults atomic.Uint64
	lookupNs, insertNs             atomic.Uint64
}

// job is a response to be sent to the server.
type job struct {
	key   string
	entry []byte
}

var errLost = errors.New("the connection failed")

const (
	// prefix begins the keys of this program in the server.
	prefix = "tutti:"
	// queued bounds the responses that wait to be sent.
	queued = 256
	// maxEntry bounds the size of a response; Redis takes values up to 512 MiB.
	maxEntry   = 64 << 20
	probeEvery = time.Second
)

// New returns a cache that connects in the background. A server that cannot be reached is logged and tried again;
// meanwhile every lookup is a miss.
func New(s Settings) *Cache {
	if s.ProbeEvery == 0 {
		s.ProbeEvery = probeEvery
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Cache{s: s, jobs: make(chan job, queued), failed: make(chan struct{}, 1), stop: stop}
	c.wg.Go(func() { c.connect(ctx) })
	c.wg.Go(func() { c.send(ctx) })
	return c
}

// Remote returns true: a lookup waits for another process.
func (*Cache) Remote() bool { return true }

// connect makes a client, and a new one whenever the server failed, until ctx ends.
func (c *Cache) connect(ctx context.Context) {
	reported := false
	for ctx.Err() == nil {
		client, err := c.dial(ctx)
		if err == nil {
			c.s.Log.InfoContext(ctx, "response cache connected", slog.String("address", c.s.Config.Address))
			reported = false
			c.lost.Store(nil)
			c.client.Store(&client)
			select {
			case <-c.failed:
			case <-ctx.Done():
			}
			c.client.Store(nil)
			client.Close()
			err = errLost
		}
		c.lost.Store(&err)
		if !reported && ctx.Err() == nil {
			c.s.Log.ErrorContext(ctx, "response cache does not answer, requests are computed", slog.String("address", c.s.Config.Address), slog.String("error", err.Error()))
			reported = true
		}
		select {
		case <-time.After(c.s.ProbeEvery):
		case <-ctx.Done():
		}
	}
}

// Lost returns why the server does not respond, nil while it does. Requests are computed meanwhile.
func (c *Cache) Lost() error {
	if err := c.lost.Load(); err != nil {
		return fmt.Errorf("the response cache at '%s' does not respond, so that every request is computed: %w", c.s.Config.Address, *err)
	}
	return nil
}

// dial returns a client whose server has responded to a ping.
func (c *Cache) dial(ctx context.Context) (rueidis.Client, error) {
	o := &c.s.Config
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{o.Address}, Username: o.User, Password: o.Password, SelectDB: o.DB,
		Dialer:           net.Dialer{Timeout: o.ConnectTimeout},
		ConnWriteTimeout: o.SocketTimeout, ForceSingleClient: true, DisableCache: true, DisableRetry: true, AlwaysRESP2: true,
		RingScaleEachConn: ringScale, ReadBufferEachConn: bufferSize, WriteBufferEachConn: bufferSize,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

const (
	ringScale  = 8 // 256 commands in flight on a connection
	bufferSize = 64 << 10
)

// Lookup implements cache.Cache. It waits at most for the socket timeout.
func (c *Cache) Lookup(ctx context.Context, key *cache.Key, out []tensor.Tensor) bool {
	c.lookups.Add(1)
	p := c.client.Load()
	if p == nil {
		return false
	}
	began, client := telemetry.Now(), *p
	defer func() { c.lookupNs.Add(uint64(max(0, telemetry.Now()-began))) }()
	limited, cancel := context.WithTimeout(ctx, c.s.Config.SocketTimeout)
	defer cancel()
	text, err := "", faults.At(faults.CacheCall)
	if err == nil {
		text, err = client.Do(limited, client.B().Get().Key(name(key)).Build()).ToString()
	}
	switch {
	case rueidis.IsRedisNil(err):
		return false
	case err != nil:
		if ctx.Err() == nil { // otherwise the request's client has disconnected
			c.fault(ctx, err)
		}
		return false
	}
	if err := decode(c.s.Alloc, []byte(text), out); err != nil {
		c.faults.Add(1)
		return false
	}
	c.hits.Add(1)
	return true
}

func name(key *cache.Key) string { return prefix + string(key[:]) }

// fault counts a failure. An error response of the server (an unexpected type, no memory left) shows that it is
// alive; any other failure starts a reconnect.
func (c *Cache) fault(ctx context.Context, err error) {
	c.faults.Add(1)
	if _, ok := rueidis.IsRedisErr(err); ok {
		c.s.Log.DebugContext(ctx, "response cache refuses", slog.String("error", err.Error()))
		return
	}
	select {
	case c.failed <- struct{}{}:
	default:
	}
}

// Insert implements cache.Cache. The response is copied and sent later. It is dropped when the server does not keep up.
func (c *Cache) Insert(key *cache.Key, out []tensor.Tensor) {
	n := 0
	for i := range out {
		n += out[i].Len
	}
	if n <= maxEntry && c.client.Load() != nil && len(c.jobs) < cap(c.jobs) {
		if entry, ok := encode(out); ok {
			select {
			case c.jobs <- job{name(key), entry}:
				return
			default:
			}
		}
	}
	c.dropped.Add(1)
}

// send sends queued responses to the server.
func (c *Cache) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-c.jobs:
			c.put(ctx, j)
		}
	}
}

// sendTimeout bounds the time to send one response, which may be large.
const sendTimeout = 5 * time.Second

func (c *Cache) put(ctx context.Context, j job) {
	p := c.client.Load()
	if p == nil {
		c.dropped.Add(1)
		return
	}
	began, client := telemetry.Now(), *p
	limited, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	set := client.B().Set().Key(j.key).Value(rueidis.BinaryString(j.entry))
	cmd := set.Build()
	if ttl := c.s.Config.TTL; ttl > 0 {
		cmd = set.Px(ttl).Build()
	}
	err := faults.At(faults.CacheCall)
	if err == nil {
		err = client.Do(limited, cmd).Error()
	}
	if err != nil && ctx.Err() == nil {
		c.dropped.Add(1)
		c.fault(ctx, err)
	}
	c.insertNs.Add(uint64(max(0, telemetry.Now()-began)))
}

// Counts implements cache.Cache. It does not report the entries of the server.
func (c *Cache) Counts() telemetry.CacheCounts {
	return telemetry.CacheCounts{
		Lookups: c.lookups.Load(), Hits: c.hits.Load(), Dropped: c.dropped.Load(), Errors: c.faults.Load(),
		LookupNs: c.lookupNs.Load(), InsertNs: c.insertNs.Load(),
	}
}

// Close closes the connection; responses that were not sent are lost.
func (c *Cache) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}

// The variables that hold credentials, as for Triton's cache; they go before settings.
const (
	userVariable     = "TRITONCACHE_REDIS_USERNAME"
	passwordVariable = "TRITONCACHE_REDIS_PASSWORD" //nolint:gosec // the name of a variable
)

// Config is the address of the server, its credentials and its timeouts.
type Config struct {
	Address                       string // host:port
	User, Password                string
	DB                            int
	ConnectTimeout, SocketTimeout time.Duration // ConnectTimeout bounds making a connection, SocketTimeout a lookup
	TTL                           time.Duration // the lifetime of an entry, 0 for the server's own eviction
}

const (
	defaultConnect = time.Second
	defaultSocket  = 100 * time.Millisecond
	maxTimeout     = 1 << 31
	maxPort        = 65535
	maxDB          = 1 << 20
)

// settings are those of --cache-config redis, each with its parser.
var settings = map[string]func(c *Config, v string) error{
	"host":            (*Config).host,
	"port":            (*Config).port,
	"user":            func(c *Config, v string) error { c.User = v; return nil },
	"password":        func(c *Config, v string) error { c.Password = v; return nil },
	"db":              func(c *Config, v string) (err error) { c.DB, err = number(v, 0, maxDB); return err },
	"connect_timeout": func(c *Config, v string) error { return duration(&c.ConnectTimeout, v, time.Millisecond, 1) },
	"socket_timeout":  func(c *Config, v string) error { return duration(&c.SocketTimeout, v, time.Millisecond, 1) },
	"ttl":             func(c *Config, v string) error { return duration(&c.TTL, v, time.Second, 0) },
}

// Keys lists the names of the settings, sorted.
func Keys() []string { return slices.Sorted(maps.Keys(settings)) }

// Parse parses the settings of --cache-config redis: host and port, and optionally user, password, db,
// connect_timeout and socket_timeout in milliseconds, and ttl in seconds. For example, host=cache.local, port=6379
// and ttl=60. Every key must be one of Keys. environ holds variables as os.Environ returns them.
func Parse(config map[string]string, environ []string) (Config, error) {
	c := Config{ConnectTimeout: defaultConnect, SocketTimeout: defaultSocket}
	for _, key := range slices.Sorted(maps.Keys(config)) { // host comes before port
		if err := settings[key](&c, config[key]); err != nil {
			return c, fmt.Errorf("--cache-config redis,%s=%s: %w", key, config[key], err)
		}
	}
	for _, key := range []string{"host", "port"} {
		if config[key] == "" {
			return c, fmt.Errorf("--cache-config redis has no %s, expected redis,%s=VALUE", key, key)
		}
	}
	for _, e := range environ {
		switch name, v, _ := strings.Cut(e, "="); name {
		case userVariable:
			c.User = v
		case passwordVariable:
			c.Password = v
		}
	}
	return c, nil
}

func (c *Config) host(v string) error {
	if strings.ContainsAny(v, " /@") {
		return errors.New("expected the name or address of a host")
	}
	c.Address = v
	return nil
}

func (c *Config) port(v string) error {
	n, err := number(v, 1, maxPort)
	c.Address = net.JoinHostPort(strings.Trim(c.Address, "[]"), strconv.Itoa(n))
	return err
}

func number(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("expected a number from %d to %d", least, most)
	}
	return n, nil
}

func duration(d *time.Duration, v string, unit time.Duration, least int) error {
	n, err := number(v, least, maxTimeout)
	*d = time.Duration(n) * unit
	return err
}
