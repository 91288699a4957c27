package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// model is a model of another backend at the devices.
type model struct {
	backends.Model
	devices   []tensor.Accelerator
	name      string
	host      tensor.Allocator
	traffic   *Traffic
	completed *modelconfig.ModelConfig
	weights   int // bytes of device memory that each instance holds
}

var (
	_ backends.DeviceModel      = (*model)(nil)
	_ backends.ConfigCompleter  = (*model)(nil)
	_ backends.ReadinessChecker = (*model)(nil)
	_ backends.ThreadedModel    = (*model)(nil)
	_ backends.PreciseModel     = (*model)(nil)
)

// At returns the model m at the devices. It takes over m. s are the settings that it was loaded with; traffic counts the copies that
// represent its kernels.
func At(m backends.Model, devices []tensor.Accelerator, s backends.Settings, traffic *Traffic) backends.Model {
	return newModel(m, devices, s, traffic)
}

func newModel(m backends.Model, devices []tensor.Accelerator, s backends.Settings, traffic *Traffic) *model {
	at := &model{Model: m, devices: devices, name: s.Model, host: s.Alloc, traffic: traffic}
	at.weights, _ = weightsOf(s.Config) // Load has checked it
	if c, ok := m.(backends.ConfigCompleter); ok {
		at.completed = proto.CloneOf(c.CompletedConfig())
	}
	return at
}

// Places returns the devices.
func (m *model) Places() []tensor.Place {
	var list []tensor.Place
	for _, d := range m.devices {
		list = append(list, d.Place())
	}
	return list
}

// CompletedConfig implements backends.ConfigCompleter.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.completed }

// Ready implements backends.ReadinessChecker.
func (m *model) Ready() error {
	if r, ok := m.Model.(backends.ReadinessChecker); ok {
		return r.Ready()
	}
	return nil
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int {
	t, threaded := m.Model.(backends.ThreadedModel)
	_, concurrent := m.Model.(backends.ConcurrentModel)
	switch {
	case threaded:
		return t.Threads()
	case concurrent:
		return 0
	}
	return 1
}

// Precision implements backends.PreciseModel.
func (m *model) Precision() string {
	if p, ok := m.Model.(backends.PreciseModel); ok {
		return p.Precision()
	}
	return ""
}

// NewInstance returns an instance at one of the devices, with its own stream.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	i := slices.Index(m.Places(), at)
	if i < 0 {
		return nil, status.Errorf(status.Unsupported, "model '%s' of backend '%s' runs at %v only, not on %s", m.name, Name, m.Places(), at)
	}
	inst, err := m.Model.NewInstance(ctx, tensor.Place{})
	if err != nil {
		return nil, err
	}
	placed, err := wrap(inst, m.devices[i], fmt.Sprintf("model '%s'", m.name), m.host, m.traffic)
	if err != nil {
		return nil, errors.Join(err, inst.Close())
	}
	if m.weights > 0 {
		if placed.weights, err = m.devices[i].Alloc(m.weights); err != nil {
			return nil, errors.Join(status.Prefixf(err, "the weights of model '%s': ", m.name), placed.Close())
		}
	}
	return placed, nil
}
