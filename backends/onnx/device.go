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

// placesOf returns where a configuration has its instances, each place once: the host, and the GPUs of its groups of
// KIND_GPU.
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

// placedModel is a model that takes and leaves its tensors at devices.
type placedModel struct{ *model }

var _ backends.DeviceModel = placedModel{}

// Places returns the GPUs that its instance groups name.
func (m placedModel) Places() []tensor.Place {
	var all []tensor.Place
	for _, s := range m.sessions {
		all = append(all, s.at)
	}
	return all
}

// placed returns the model as the scheduler is to see it: where the memory of every GPU is known, tensors stay there.
// Elsewhere they come and go on the host, and the runtime moves them.
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

// Stream returns where its inputs are waited for.
func (x placedInstance) Stream() tensor.Stream { return x.stream }

// Close ends the stream and the instance.
func (x placedInstance) Close() error {
	err := x.stream.Close()
	return errors.Join(err, x.instance.Close())
}

// atDevice has an instance's runs go through a binding, which leaves at the device what it allocates.
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

// inputsReady waits for what the inputs and the memory of the outputs wait for: the runtime computes in a stream of its
// own, and is done when a run returns.
func (x *instance) inputsReady() error {
	if x.stream == nil {
		return nil
	}
	if e := x.stream.Record(); e != nil {
		return e.Wait()
	}
	return nil
}
