// Package simtest runs the models of tests at devices: simulated ones, or those of the checking driver.
package simtest

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Around wraps a backend so that all its models run at the devices of m, regardless of their configuration.
func Around(f backends.Factory, m *Machine) backends.Factory {
	open := f.New
	f.New = func(o backends.Options) (backends.Backend, error) {
		of, err := open(o)
		if err != nil {
			return nil, err
		}
		for _, d := range m.Devices() {
			if o.Places.Device(d.Place()) == nil {
				if err := o.Places.Add(d); err != nil {
					return nil, errors.Join(err, of.Close())
				}
			}
		}
		return around{Backend: of, machine: m}, nil
	}
	return f
}

// around is a backend at the devices of a machine.
type around struct {
	backends.Backend
	machine *Machine
}

// Load loads a model at the devices.
func (a around) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	s.Config = proto.CloneOf(s.Config)
	for _, g := range s.Config.GetInstanceGroup() {
		if g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU {
			g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_CPU, nil
		}
	}
	m, err := a.Backend.Load(ctx, s)
	if err != nil {
		return nil, err
	}
	return sim.At(m, a.machine.Devices(), s, a.machine.Traffic()), nil
}
