//go:build cgo

package tensorrt

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// engine is a plan at one device, which the instances there share.
type engine struct {
	*plan
	device *cuda.Device
}

// model is one loaded plan file.
type model struct {
	*binding
	backend   *backend
	settings  backends.Settings
	devices   []tensor.Place
	onChange  bool // execution_context_allocation_strategy is ON_PROFILE_CHANGE
	extra     []port
	completed *modelconfig.ModelConfig

	mu      sync.Mutex
	engines map[tensor.Place]*engine // guarded by mu
	closed  bool                     // guarded by mu
}

var (
	_ backends.DeviceModel     = (*model)(nil)
	_ backends.GroupModel      = (*model)(nil)
	_ backends.ConfigCompleter = (*model)(nil)
)

// Places implements backends.DeviceModel.
func (m *model) Places() []tensor.Place { return m.devices }

// CompletedConfig implements backends.ConfigCompleter.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.completed }

// load reads the settings and the plan.
func (m *model) load() error {
	s := &m.settings
	switch v := s.Param(paramStrategy); v {
	case "", "STATIC":
	case "ON_PROFILE_CHANGE":
		m.onChange = true
	default:
		return status.Errorf(status.InvalidArg,
			"Invalid value for '%s': '%s' for model instance '%s'. Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'.", paramStrategy, v, s.Model)
	}
	if err := m.findDevices(); err != nil {
		return err
	}
	e, err := m.engineAt(m.devices[0])
	if err != nil {
		return err
	}
	profiles, err := e.profilesOf(s.Config)
	if err == nil {
		m.binding, err = e.bind(s, profiles)
	}
	if err != nil {
		return err
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	for _, p := range e.outs {
		if !slices.ContainsFunc(m.Out, func(o bound) bool { return o.Name == p.Name }) {
			m.extra = append(m.extra, p)
		}
	}
	m.complete()
	return nil
}

// complete gives a model that batches Triton's default scheduler.
func (m *model) complete() {
	cfg := m.settings.Config
	if m.settings.Strict || m.Sig.MaxBatch <= 1 || cfg.GetSchedulingChoice() != nil {
		return
	}
	m.completed = proto.CloneOf(cfg)
	m.completed.MaxBatchSize = int32(m.Sig.MaxBatch)
	m.completed.SchedulingChoice = &modelconfig.ModelConfig_DynamicBatching{DynamicBatching: &modelconfig.ModelDynamicBatching{}}
}

// findDevices sets the devices of the instances: those of groups of KIND_GPU.
func (m *model) findDevices() error {
	for _, g := range m.settings.Config.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
			return status.Errorf(status.InvalidArg, "unable to load model '%s', TensorRT backend supports only GPU device%s", m.settings.Model, m.withoutGPU())
		}
		for _, id := range g.GetGpus() {
			at := tensor.Place{Kind: tensor.Device, ID: int16(id)}
			if !slices.Contains(m.devices, at) {
				m.devices = append(m.devices, at)
			}
		}
	}
	if len(m.devices) == 0 {
		return status.Errorf(status.InvalidArg, "unable to load model '%s', TensorRT backend supports only GPU device%s", m.settings.Model, m.withoutGPU())
	}
	return nil
}

// withoutGPU explains why there is no GPU, for errors.
func (m *model) withoutGPU() string {
	if m.backend.places == nil || !m.backend.places.Any() {
		return ": this server has no GPU; 'tutti doctor' says why"
	}
	return ": set the kind of its instance_group to KIND_GPU"
}

// engineAt returns the plan at a device. The first call for a device deserializes it.
func (m *model) engineAt(at tensor.Place) (*engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.settings.Model)
	}
	if e := m.engines[at]; e != nil {
		return e, nil
	}
	var device *cuda.Device
	if m.backend.places != nil {
		device, _ = m.backend.places.Device(at).(*cuda.Device)
	}
	if device == nil {
		return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', TensorRT backend supports only GPU device: there is no GPU at %s", m.settings.Model, at)
	}
	s := &m.settings
	path, err := bind.ModelFile(s, planFile, nil)
	if err != nil {
		return nil, err
	}
	e, err := m.backend.deserialize(device, path, s)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	m.engines[at] = e
	return e, nil
}

// deserializing is held while a plan is deserialized: TensorRT does that in one thread at a time.
var deserializing sync.Mutex

func (b *backend) deserialize(d *cuda.Device, path string, s *backends.Settings) (*engine, error) {
	deserializing.Lock()
	defer deserializing.Unlock()
	rt, err := b.lib.runtime(d, s.Log)
	if err != nil {
		return nil, err
	}
	p, err := readPlan(rt, path, b.hostCode)
	if err != nil {
		rt.close()
		return nil, err
	}
	return &engine{p, d}, nil
}

// NewInstance returns an executor at a device with profile 0.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	return m.NewGroupInstance(ctx, at, nil)
}

// NewGroupInstance returns an executor at a device with the profiles of its instance group.
func (m *model) NewGroupInstance(_ context.Context, at tensor.Place, g *modelconfig.ModelInstanceGroup) (backends.Instance, error) {
	e, err := m.engineAt(at)
	if err != nil {
		return nil, err
	}
	profiles, err := e.profilesIn(m.settings.Model, g)
	if err != nil {
		return nil, err
	}
	return newInstance(m, e, profiles)
}

// profilesOf returns the profiles of all instance groups, sorted.
func (e *engine) profilesOf(cfg *modelconfig.ModelConfig) ([]int, error) {
	all := map[int]bool{}
	for _, g := range cfg.GetInstanceGroup() {
		list, err := e.profilesIn(cfg.GetName(), g)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			all[p] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// profilesIn returns the profiles of an instance group, each once: 0 when it lists none.
func (e *engine) profilesIn(model string, g *modelconfig.ModelInstanceGroup) ([]int, error) {
	var list []int
	for _, text := range g.GetProfile() {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "unable to parse '%s' as an optimization profile of model '%s': expected a number from 0 to %d", text, model, e.profiles-1)
		}
		if n < 0 || n >= e.profiles {
			return nil, status.Errorf(status.InvalidArg, "Can not set the specified optimization profile %s[%d] for %s. Expected optimization profile index range 0-%d",
				text, n, model, e.profiles-1)
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	if list == nil {
		list = []int{0}
	}
	return list, nil
}

// Close releases the plans.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, e := range m.engines {
		e.close()
		e.rt.close()
	}
	m.engines, m.closed = nil, true
	return errors.Join(errs...)
}
