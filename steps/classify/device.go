package classify

import (
	"fmt"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
)

var (
	_ steps.DeviceStep = (*step)(nil)
	_ steps.DeviceStep = (*scores)(nil)
	_ steps.DeviceStep = (*argMax)(nil)
)

// functions are the operations as kernels know them.
var functions = map[string]compute.Function{
	opSoftmax: compute.Softmax, opLogSoftmax: compute.LogSoftmax, opSigmoid: compute.Sigmoid, opRaw: compute.Raw,
}

// mostAtDevice is the largest k that is ranked at a device, where each of the k takes a pass over the scores.
const mostAtDevice = 256

const labelsAreText = "labels are text"

// HostOnly implements steps.DeviceStep.
func (s *step) HostOnly() string {
	switch {
	case s.labels != nil:
		return labelsAreText
	case s.k > mostAtDevice:
		return fmt.Sprintf("k is %d, which takes a pass for each: at most %d", s.k, mostAtDevice)
	}
	return ""
}

// AtDevice implements steps.DeviceStep.
func (s *step) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	var t compute.TopK
	return steps.DeviceFunc(func(b *backends.Batch, k compute.Kernels) error { return s.rank(b, k, &t) }).On(d), nil
}

// rank is Run at a device.
//
// hot: only the outputs are allocated.
func (s *step) rank(b *backends.Batch, k compute.Kernels, t *compute.TopK) (err error) {
	in := &b.In[0]
	if err := s.check(int(in.Shape.Dim(in.Shape.Rank() - 1))); err != nil {
		return err
	}
	shape := steps.Shape(b, s.batched, int64(s.k))
	*t = compute.TopK{Src: in, K: s.k, Function: functions[s.activation], Threshold: s.threshold}
	if t.Values, err = b.Alloc(outValues, tensor.FP32, shape); err != nil {
		return err
	}
	if t.Indices, err = b.Alloc(outIndices, tensor.Int32, shape); err != nil {
		return err
	}
	if s.cut {
		if t.Counts, err = b.Alloc(len(b.Out)-1, tensor.Int32, steps.Shape(b, s.batched, 1)); err != nil {
			return err
		}
	}
	return k.TopK(b.Stream, t)
}

// HostOnly implements steps.DeviceStep.
func (*scores) HostOnly() string { return "" }

// AtDevice implements steps.DeviceStep.
func (s *scores) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	f := functions[s.op]
	return steps.DeviceFunc(func(b *backends.Batch, k compute.Kernels) error {
		out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
		if err != nil {
			return err
		}
		return k.Score(b.Stream, out, &b.In[0], f, s.temperature)
	}).On(d), nil
}

// HostOnly implements steps.DeviceStep.
func (s *argMax) HostOnly() string {
	if s.top.labels != nil {
		return labelsAreText
	}
	return ""
}

// AtDevice implements steps.DeviceStep.
func (s *argMax) AtDevice(d *steps.Device) (steps.DeviceRunner, error) {
	return steps.DeviceFunc(func(b *backends.Batch, k compute.Kernels) error {
		in := &b.In[0]
		if n := in.Shape.Dim(in.Shape.Rank() - 1); n < 1 {
			return status.Errorf(status.InvalidArg, "input 'scores': expected at least 1 class, found %s", strconv.FormatInt(n, 10))
		}
		shape := steps.Shape(b, s.top.batched, 1)
		index, err := b.Alloc(outIndex, tensor.Int64, shape)
		if err != nil {
			return err
		}
		value, err := b.Alloc(outValue, tensor.FP32, shape)
		if err != nil {
			return err
		}
		return k.ArgMax(b.Stream, index, value, in)
	}).On(d), nil
}
