package pool

import (
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
)

var _ steps.DeviceStep = (*step)(nil)

// HostOnly implements steps.DeviceStep.
func (s *step) HostOnly() string {
	if s.mode != "mean" {
		return fmt.Sprintf("mode '%s' has no kernel", s.mode)
	}
	return ""
}

// AtDevice implements steps.DeviceStep.
func (s *step) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	return steps.DeviceFunc(s.mean).On(d), nil
}

// mean is Run at a device.
func (s *step) mean(b *backends.Batch, k compute.Kernels) error {
	if err := check(b); err != nil {
		return err
	}
	in := &b.In[portHidden]
	out, err := b.Alloc(0, tensor.FP32, steps.Shape(b, s.batched, in.Shape.Dim(in.Shape.Rank()-1)))
	if err != nil {
		return err
	}
	return k.MeanPool(b.Stream, out, in, &b.In[portMask], s.normalize)
}
