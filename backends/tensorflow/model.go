package tensorflow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// model is one loaded model.
type model struct {
	how     loaded
	binding *bind.Binding[native]
	log     *slog.Logger
	// copies is set once the runtime has kept an input beyond its run: inputs are copied from then on.
	copies atomic.Bool

	mu       sync.Mutex
	sessions []*session // guarded by mu
	kept     []kept     // guarded by mu; of instances that are closed
	closed   bool       // guarded by mu
}

var _ backends.ThreadedModel = (*model)(nil)

// load opens the first session and binds the configuration to what it has.
func (m *model) load(s *backends.Settings, maxBatch int) (err error) {
	prefix := func(err error) error {
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, m.how.files.path)
	}
	if m.how.set.initOps != "" && !m.how.files.graph {
		return prefix(status.Errorf(status.InvalidArg, "parameter '%s' is for a GraphDef, a SavedModel names its own", keyInitOps))
	}
	if m.how.init, err = initOps(s, m.how.set.initOps); err != nil {
		return prefix(err)
	}
	ses, err := m.how.open()
	if err != nil {
		return prefix(m.how.files.unread(err))
	}
	m.sessions = append(m.sessions, ses)
	var ins, outs []port
	if m.how.files.graph {
		ins, outs, err = ses.named(s)
	} else {
		ins, outs, err = ses.signed(m.how.set.signature)
	}
	if err != nil {
		return prefix(err)
	}
	if m.binding, err = bound(s.Config, ins, outs, maxBatch); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, m.how.files.path)
	}
	m.binding.Sig.Model, m.binding.Sig.Version = s.Model, s.Version
	return nil
}

// Threads returns those of one execution, as configured.
func (m *model) Threads() int { return m.how.set.threads() }

// Signature returns the configured ports, or the model's where the configuration has none.
func (m *model) Signature() *config.Signature { return m.binding.Sig }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("tensorflow", m.binding.Sig.Model, at); err != nil {
		return nil, err
	}
	ses, err := m.session()
	if err != nil {
		return nil, err
	}
	x, err := newInstance(m, ses)
	if err != nil {
		m.leave(ses, nil)
	}
	return x, err
}

// session returns one for a further instance: the first that has room, or a new one.
func (m *model) session() (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.binding.Sig.Model)
	}
	for _, s := range m.sessions {
		if s.users < m.how.set.share {
			s.users++
			return s, nil
		}
	}
	s, err := m.how.open()
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s' for another instance: ", m.binding.Sig.Model, m.how.files.path)
	}
	s.users++
	m.sessions = append(m.sessions, s)
	return s, nil
}

// leave gives an instance's place in its session up, with the inputs that the runtime still refers to.
func (m *model) leave(s *session, list []kept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.users--
	m.kept = append(m.kept, list...)
}

// Close unloads the model.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, s := range m.sessions {
		s.close()
	}
	m.sessions = nil
	if m.kept = settled(m.kept); len(m.kept) > 0 {
		// Whatever still refers to them may read them at any time: their memory is not given back.
		m.log.Warn("the runtime keeps inputs of a closed model", slog.String("model", m.how.files.path), slog.Int("inputs", len(m.kept)))
		m.kept = nil
	}
	return nil
}
