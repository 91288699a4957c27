package normalize

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
)

var _ steps.DeviceStep = (*step)(nil)

// HostOnly implements steps.DeviceStep.
func (*step) HostOnly() string { return "" }

// AtDevice implements steps.DeviceStep.
func (*step) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	return steps.DeviceFunc(func(b *backends.Batch, k compute.Kernels) error {
		out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
		if err != nil {
			return err
		}
		return k.Unit(b.Stream, out, &b.In[0])
	}).On(d), nil
}
