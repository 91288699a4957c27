package remote

import (
	"context"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// defaultParallel is how many requests a model without instance_group has in flight at most.
const defaultParallel = 64

// model is a far model. Its only instance is itself: an execution holds a goroutine and no thread while it waits.
type model struct {
	backends.Ports
	set       *settings
	cfg       *modelconfig.ModelConfig // as given
	strict    bool
	completed *modelconfig.ModelConfig // nil if the endpoint was away
	alloc     tensor.Allocator
	channel   *channel
	release   func()
	once      sync.Once
	requests  pool.Of[exchange]
	names     []string // of the outputs

	mu       sync.Mutex
	verdicts map[string]verdict // by address; guarded by mu
	verified bool               // the far model has been compared; guarded by mu
}

// verdict is the last comparison with the model at one address.
type verdict struct {
	opened int // number of the connection, see watcher.unchecked
	err    error
}

var (
	_ backends.ConcurrentModel  = (*model)(nil)
	_ backends.ParallelModel    = (*model)(nil)
	_ backends.ThreadedModel    = (*model)(nil)
	_ backends.ConfigCompleter  = (*model)(nil)
	_ backends.ReadinessChecker = (*model)(nil)
)

// newModel returns a model that is not connected. far is nil if the endpoint is away: the configuration is complete then.
func newModel(s backends.Settings, set *settings, far *description) (*model, error) {
	m := &model{set: set, cfg: s.Config, strict: s.Strict, alloc: s.Alloc, verdicts: map[string]verdict{}}
	if far == nil {
		m.Sig = config.ModelOf(config.SignatureOf(s.Config))
		if i := slices.IndexFunc(slices.Concat(m.Sig.Inputs, m.Sig.Outputs), func(p config.Port) bool { return p.Unbatched }); i >= 0 {
			return nil, status.Errorf(status.Unsupported, "model '%s': backend '%s' supports no ragged inputs, batch_input and batch_output", s.Model, Name)
		}
	} else {
		var err error
		if m.Sig, m.completed, err = (&merger{cfg: s.Config, far: far, set: set, strict: s.Strict}).merge(); err != nil {
			return nil, err
		}
		m.verified = true
		if far.sequence && set.balancing == "" {
			set.balancing = bySequence
		}
	}
	m.Sig.Version = s.Version
	for i := range m.Sig.Outputs {
		m.names = append(m.names, m.Sig.Outputs[i].Name)
	}
	m.requests.New = func() *exchange { return newExchange(m) }
	return m, nil
}

// Inline returns false: an execution waits for the network.
func (*model) Inline() bool { return false }

// Threads returns 0: an execution waits and does not compute.
func (*model) Threads() int { return 0 }

// Parallelism returns the number of instances of a model without instance_group.
func (*model) Parallelism() int { return defaultParallel }

// CompletedConfig returns the configuration with max_batch_size and the transaction policy of the far model.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.completed }

// NewInstance returns m.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return instance{m}, nil
}

// instance is the model as an instance, whose Close does nothing.
type instance struct{ *model }

// Close does nothing: the connections belong to the model.
func (instance) Close() error { return nil }

// Close releases the connections.
func (m *model) Close() error {
	m.once.Do(func() {
		m.channel.unregister(m)
		m.release()
	})
	return nil
}

// Ready returns nil when there is a connection and the far model is the one that was loaded.
func (m *model) Ready() error {
	if err := m.channel.watch.away(); err != nil {
		return status.Reasonf(status.RemoteUnavailable, "%s is not reachable: %w", m.set.where(nil), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr, v := range m.verdicts {
		if v.err != nil && m.channel.watch.connected(addr) {
			return v.err
		}
	}
	if !m.verified {
		return status.Reasonf(status.RemoteUnavailable, "%s has not been reached since this model was loaded", m.set.where(nil))
	}
	return nil
}

// compare compares the far model of now with the one that was loaded.
func (m *model) compare(far *description, addr string) error {
	now, _, err := (&merger{cfg: m.cfg, far: far, set: m.set, strict: m.strict}).merge()
	var text string
	if err != nil {
		text = status.Text(err)
	} else if text = differences(m.Sig, now); text == "" {
		return nil
	}
	return status.Reasonf(status.ModelNotReady, "%s has changed at %s since model '%s' was loaded: %s; load the model again", m.set.where(nil), addr, m.Sig.Model, text)
}

// judge stores the result of a comparison with the model at an address.
func (m *model) judge(addr string, opened int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verdicts[addr] = verdict{opened: opened, err: err}
	m.verified = m.verified || err == nil
}

// agrees reports whether the model at an address was compared since its last connection, and agreed.
func (m *model) agrees(addr string, opened int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.verdicts[addr]
	return ok && v.err == nil && v.opened == opened
}

// doubt has the far model compared again, after a response that does not fit its metadata.
func (m *model) doubt() {
	m.mu.Lock()
	clear(m.verdicts)
	m.mu.Unlock()
	m.channel.watch.recheck()
}
