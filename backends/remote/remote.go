// Package remote implements the backend remote: a model that another server executes. The server may be another Tutti, Triton,
// OpenVINO Model Server or anything else that speaks KServe v2 over gRPC.
//
// One execution is one call of ModelInfer, or of ModelStreamInfer for a decoupled model. Balancing, retries, health checks and
// keepalive are those of grpc-go, configured by a service config that is made of the model's parameters.
//
//   - settings.go, service.go: parameters, and the service config that they make
//   - channel.go, watcher.go: connections, shared by models with the same settings
//   - xds.go: targets whose servers a control plane names
//   - describe.go: the far model's metadata, and their comparison with the configuration
//   - model.go: loading, readiness, metadata after a reconnect
//   - execute.go, stream.go: executions
//   - request.go, response.go, errors.go: messages
package remote

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// Name is the value of the field backend in config.pbtxt.
const Name = "remote"

// NewFactory returns the factory of the backend remote. Its models have no files.
func NewFactory() backends.Factory {
	keys := paramKeys()
	return backends.Factory{
		Name: Name, ConfigKeys: sharedKeys(), Params: keys, Guide: guide(),
		New: func(o backends.Options) (backends.Backend, error) {
			b := &backend{log: o.Log, config: o.Config, channels: map[string]*channel{}}
			if b.log == nil {
				b.log = slog.New(slog.DiscardHandler)
			}
			return b, b.check()
		},
	}
}

// backend has the channels of its models.
type backend struct {
	log    *slog.Logger
	config map[string]string // values of --backend-config

	mu       sync.Mutex
	channels map[string]*channel // by settings.channelKey; guarded by mu
}

// check reports a bad value of --backend-config when the backend is opened, before a model needs it.
func (b *backend) check() error {
	_, err := parseSettings("", nil, b.config)
	return err
}

// Load reads the far model's metadata and compares them with the configuration.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	params := map[string]string{}
	for key, p := range s.Config.GetParameters() {
		params[key] = p.GetStringValue()
	}
	set, err := parseSettings(s.Model, params, b.config)
	if err != nil {
		return nil, err
	}
	if set.endpoint == "" {
		return nil, config.Errorf(config.BadParam, "parameters", "model '%s': backend '%s' expects the parameter 'endpoint', or --backend-config=%s,endpoint=HOST:PORT, found neither",
			s.Model, Name, Name)
	}
	far, away := ask(ctx, set)
	if away != nil && (status.CodeOf(away) != status.Unavailable || !complete(s.Config)) {
		return nil, loadError(s.Model, away)
	}
	m, err := newModel(s, set, far)
	if err != nil {
		return nil, err
	}
	if m.channel, err = b.acquire(set); err != nil { //nolint:contextcheck // it outlives the load
		return nil, err
	}
	m.release = func() { b.give(m.channel) }
	if away != nil {
		b.log.WarnContext(ctx, "the endpoint of a remote model is away: it loads by its configuration alone",
			slog.String("model", s.Model), slog.String("endpoint", set.endpoint), slog.String("error", status.Text(away)))
	}
	m.channel.register(m)
	return m, nil
}

// ask asks the endpoint for the far model's metadata.
func ask(ctx context.Context, set *settings) (*description, error) {
	var plane *bootstrap
	if set.controlled() {
		var err error
		if plane, err = readBootstrap(); err != nil {
			return nil, status.Prefixf(err, "endpoint '%s': ", set.endpoint)
		}
	}
	watch := newWatcher()
	conn, err := set.dial(watch, probing)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	limited, cancel := context.WithTimeout(ctx, set.loadTimeout)
	defer cancel()
	far, err := describe(limited, conn, set)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = status.Reasonf(status.RemoteUnavailable, "%s did not respond within %s (parameter 'load_timeout')", set.where(nil), set.loadTimeout)
	}
	if err != nil && plane != nil {
		err = plane.explain(err, set, watch.tried())
	}
	return far, err
}

// acquire returns the channel of the settings, which it opens if it is the first to need it. The caller must call give.
func (b *backend) acquire(set *settings) (*channel, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := set.channelKey()
	c := b.channels[key]
	if c == nil {
		var err error
		if c, err = newChannel(set, key, b.log); err != nil {
			return nil, err
		}
		b.channels[key] = c
	}
	c.users++
	return c, nil
}

// give closes a channel that no other model uses.
func (b *backend) give(c *channel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(b.channels, c.key)
		c.close()
	}
}

// Close does nothing: the last model closes its channel.
func (*backend) Close() error { return nil }
