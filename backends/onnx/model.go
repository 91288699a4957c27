package onnx

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// placedSession is the session for one place.
type placedSession struct {
	*session
	at tensor.Place
}

func closeSessions(list []placedSession) {
	for _, s := range list {
		s.close()
	}
}

// model is one loaded model file.
type model struct {
	sessions []placedSession // at least one
	binding  *binding
	shrink   string
	threads  int
	places   *tensor.Places
	// unsure is set when the symbolic names of dimensions proved wrong. The runtime then allocates all outputs.
	unsure atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.binding.Sig }

// NewInstance returns an executor on the host, or at a GPU of the configuration.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	i := slices.IndexFunc(m.sessions, func(s placedSession) bool { return s.at == at })
	if i < 0 {
		return nil, status.Errorf(status.Unsupported, "model '%s': the configuration has no instance group for %s", m.binding.Sig.Model, at)
	}
	x, err := newInstance(m, m.sessions[i].session)
	if err != nil || at.Kind != tensor.Device {
		return x, err
	}
	return m.atDevice(x, at)
}

// Close unloads the model.
func (m *model) Close() error {
	closeSessions(m.sessions)
	return nil
}
