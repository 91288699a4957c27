package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// placesOf returns the distinct places of the configured instances: the host, and the GPUs of groups of KIND_GPU.
func placesOf(cfg *modelconfig.ModelConfig) []tensor.Place {
	var all []tensor.Place
	add := func(at tensor.Place) {
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU {
			add(tensor.Place{})
			continue
		}
		for _, id := range g.GetGpus() {
			add(tensor.Place{Kind: tensor.Device, ID: int16(id)})
		}
	}
	if len(all) == 0 {
		add(tensor.Place{})
	}
	return all
}

// placedModel is a model whose tensors are at devices.
type placedModel struct{ *model }

var _ backends.DeviceModel = placedModel{}

// Places implements backends.DeviceModel.
func (m placedModel) Places() []tensor.Place {
	var all []tensor.Place
	for _, s := range m.sessions {
		all = append(all, s.at)
	}
	return all
}

// placed returns a placedModel when the server manages the memory of every GPU of the model. Otherwise it returns the model: its
// tensors are on the host, and the runtime copies them.
func (m *model) placed() backends.Model {
	for _, s := range m.sessions {
		if m.device(s.at) == nil {
			return m
		}
	}
	return placedModel{m}
}

func (m *model) device(at tensor.Place) tensor.Accelerator {
	if m.places == nil || at.Kind != tensor.Device {
		return nil
	}
	return m.places.Device(at)
}

// placedInstance is an instance whose tensors are at a device.
type placedInstance struct{ *instance }

var _ backends.DeviceInstance = placedInstance{}

// Stream implements backends.DeviceInstance.
func (x placedInstance) Stream() tensor.Stream { return x.stream }

// Close closes the stream and the instance.
func (x placedInstance) Close() error {
	err := x.stream.Close()
	return errors.Join(err, x.instance.Close())
}

// atDevice makes the runs of an instance use a binding, which allocates outputs at the device.
func (m *model) atDevice(x *instance, at tensor.Place) (backends.Instance, error) {
	d := m.device(at)
	if d == nil {
		return x, nil
	}
	err := x.bindRuns(int(at.ID))
	if err == nil {
		x.at = at
		x.stream, err = d.NewStream(m.binding.Sig.Model)
	}
	if err != nil {
		_ = x.Close()
		return nil, status.Prefixf(err, "model '%s': ", m.binding.Sig.Model)
	}
	return placedInstance{x}, nil
}

// bindRuns makes executions use an OrtIoBinding, whose outputs the runtime allocates at a CUDA device, or on the host when device
// is negative.
func (x *instance) bindRuns(device int) error {
	return x.lib.check(C.tt_call_bind(x.call, C.int(device)))
}

// inputsReady waits until the inputs are in device memory. The runtime uses its own stream, and is done when a run returns.
func (x *instance) inputsReady() error {
	if x.stream == nil {
		return nil
	}
	if e := x.stream.Record(); e != nil {
		return e.Wait()
	}
	return nil
}
