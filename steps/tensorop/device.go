package tensorop

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
)

var _ steps.DeviceStep = (*step)(nil)

// HostOnly implements steps.DeviceStep. cast, reshape, transpose, slice, concat, stack and split run at a device.
func (st *step) HostOnly() string {
	if st.text {
		return "texts are on the host"
	}
	switch r := st.runner.(type) {
	case *caster:
		return r.hostOnly()
	case *reshape:
		return ""
	case *movement:
		switch r.mover.(type) {
		case *transpose, *concat, *split, *slice:
			return ""
		}
	}
	return fmt.Sprintf("operation '%s' has no kernel", st.name)
}

// hostOnly returns why a cast cannot run at a device: a number that does not fit fails its row, which only the host can tell.
func (c *caster) hostOnly() string {
	toInteger := c.to != tensor.Bool && !isHalf(c.to) && c.to != tensor.FP32 && c.to != tensor.FP64
	fromFloat := isHalf(c.from) || c.from == tensor.FP32 || c.from == tensor.FP64
	if toInteger && c.from != tensor.Bool && (fromFloat && c.mode != saturate || c.mode == refuse) {
		return "a number that does not fit fails its row: with overflow 'saturate' the cast has a kernel"
	}
	return ""
}

// AtDevice implements steps.DeviceStep.
func (st *step) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	return &atDevice{step: st, device: d}, nil
}

// atDevice is a step at a device, with its own scratch memory.
type atDevice struct {
	step   *step
	device *steps.Device
	x      scratch
}

// Run fills the outputs.
func (a *atDevice) Run(_ context.Context, b *backends.Batch) (err error) {
	if a.x.device, err = a.device.Load(); err != nil {
		return err
	}
	err = a.step.runner.run(b, &a.x)
	a.x.moving = moving{outs: a.x.moving.outs[:0]}
	return err
}

// Close does nothing.
func (*atDevice) Close() error { return nil }

// launch is the function spread at a device.
func (x *scratch) launch(s tensor.Stream, dst *tensor.Tensor, at int, src *tensor.Tensor) error {
	w := &x.loop
	w.fold()
	if w.empty {
		return nil
	}
	x.nest = compute.Nest{Rank: w.rank, Size: w.size, Write: w.stride[0], Read: w.stride[1], To: w.at[0] + at, From: w.at[1]}
	return x.device.Spread(s, dst, src, &x.nest)
}
