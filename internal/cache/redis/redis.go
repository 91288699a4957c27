package redis

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Settings are the parameters of New.
type Settings struct {
	Config Config
	// Alloc allocates the tensors of responses, on the host.
	Alloc tensor.Allocator
	Log   *slog.Logger
	// ProbeEvery is the interval of attempts to reconnect to a server that failed; 0 for a second.
	ProbeEvery time.Duration

	_ struct{}
}

// Cache stores responses in a Redis server. It is safe for concurrent use.
type Cache struct {
	s      Settings
	client atomic.Pointer[rueidis.Client] // nil while the server does not respond
	jobs   chan job
	failed chan struct{} // a lookup or an insertion failed
	stop   context.CancelFunc
	wg     sync.WaitGroup

	lookups, hits, dropped, faults atomic.Uint64
	lookupNs, insertNs             atomic.Uint64
}

var _ cache.Cache = (*Cache)(nil)

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
			c.client.Store(&client)
			select {
			case <-c.failed:
			case <-ctx.Done():
			}
			c.client.Store(nil)
			client.Close()
			err = errLost
		}
		if !reported && ctx.Err() == nil {
			c.s.Log.ErrorContext(ctx, "response cache does not answer, requests are computed", slog.String("address", c.s.Config.Address), slog.String("error", err.Error()))
			reported = true
		}
		pause(ctx, c.s.ProbeEvery)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
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
	text, err := client.Do(limited, client.B().Get().Key(name(key)).Build()).ToString()
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

// Insert implements cache.Cache. The response is copied and sent later. It is dropped when the server does not keep
// up.
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
	if err := client.Do(limited, cmd).Error(); err != nil && ctx.Err() == nil {
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
