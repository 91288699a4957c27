//go:build cgo

package tensorflow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// binding has the bound ports of a model.
type binding = bind.Binding[native]

// model is a loaded model.
type model struct {
	*binding
	how loaded
	log *slog.Logger
	// copies is set when the runtime has retained an input after its run. From then on inputs are copied.
	copies atomic.Bool

	mu       sync.Mutex
	sessions []*session // guarded by mu
	retained []retained // of closed instances; guarded by mu
	closed   bool       // guarded by mu
}

var _ backends.ThreadedModel = (*model)(nil)

// load opens the first session and binds the configuration to the model.
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
		ins, outs, err = ses.graphPorts(s.Config)
	} else {
		ins, outs, err = ses.signaturePorts(m.how.set.signature)
	}
	if err != nil {
		return prefix(err)
	}
	if m.binding, err = bound(s.Config, ins, outs, maxBatch); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, m.how.files.path)
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	return nil
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.how.set.threads() }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("tensorflow", m.Sig.Model, at); err != nil {
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

// session returns a session for another instance: the first one that may be shared, or a new one.
func (m *model) session() (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.Sig.Model)
	}
	for _, s := range m.sessions {
		if s.users < m.how.set.share {
			s.users++
			return s, nil
		}
	}
	s, err := m.how.open()
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s' for another instance: ", m.Sig.Model, m.how.files.path)
	}
	s.users++
	m.sessions = append(m.sessions, s)
	return s, nil
}

// leave releases an instance's use of a session. list are the inputs that the runtime still retains.
func (m *model) leave(s *session, list []retained) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.users--
	m.retained = append(m.retained, list...)
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
	if m.retained = releaseReturned(m.retained); len(m.retained) > 0 {
		// The runtime may read them at any time, so their memory is never released.
		m.log.Warn("the runtime keeps inputs of a closed model", slog.String("model", m.how.files.path), slog.Int("inputs", len(m.retained)))
		m.retained = nil
	}
	return nil
}
