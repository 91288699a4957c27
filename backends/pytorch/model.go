package pytorch

/*
#include "call.h"
*/
import "C"

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// model is a loaded model file. Its instances share the weights unless ENABLE_WEIGHT_SHARING is false.
type model struct {
	lib     *library
	sig     *config.Signature
	in, out []boundPort
	set     *settings

	mu     sync.Mutex
	loaded *C.tt_torch_model // guarded by mu; nil once closed
	used   bool              // an instance uses the loaded weights; guarded by mu
}

var _ backends.ThreadedModel = (*model)(nil)

// bind matches the declared tensors with the arguments and results of forward.
func (m *model) bind(aoti bool, log *slog.Logger) error {
	f := &forward{unknown: true}
	if !aoti {
		var err error
		if f, err = m.lib.describe(m.loaded); err != nil {
			return err
		}
	}
	p, err := planOf(f, m.in, m.out)
	if err != nil {
		return err
	}
	warn(log, m, p)
	return m.lib.bind(m.loaded, p)
}

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.sig }

// Threads implements backends.ThreadedModel. The number is a setting of the process.
func (m *model) Threads() int { return max(1, m.lib.threads()) }

// NewInstance returns an executor. Its tensors are on the host, whatever device the model runs on.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("pytorch", m.sig.Model, at); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded == nil {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.sig.Model)
	}
	x := &instance{m: m, lib: m.lib, buffers: newBuffers(m.lib)}
	use := m.loaded
	if m.set.own && m.used {
		var err error
		if x.own, err = m.lib.clone(m.loaded); err != nil {
			return nil, status.Prefixf(err, "model '%s': ", m.sig.Model)
		}
		use = x.own
	}
	m.used = true
	if err := x.open(use); err != nil {
		m.lib.unload(x.own)
		return nil, err
	}
	return x, nil
}

// Close unloads the model.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lib.unload(m.loaded)
	m.loaded = nil
	return nil
}
