package batch_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// ownOutputs gives each request of a batch an output of its own: as many elements as its input says.
func ownOutputs(b *backends.Batch) error {
	for i := range b.Requests {
		q := &b.Requests[i]
		n := int64(tensor.Slice[float32](&b.In[0])[q.First])
		out, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(int64(q.Rows), n))
		if err != nil {
			return err
		}
		for k := range tensor.Slice[float32](&out) {
			tensor.Slice[float32](&out)[k] = float32(n)
		}
		if q.Out = []tensor.Tensor{out}; n == 4 {
			q.Err = status.Errorf(status.InvalidArg, "four")
		}
	}
	return nil
}

// TestOwnOutputs checks that requests of a batch get outputs of different shapes, that one which fails or does not fit
// fails alone, and that nothing leaks.
func TestOwnOutputs(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Outputs[0].Dims = tensor.Of(-1)
	b := schedtest.NewBench(t, sig, nil)
	var jobs []*schedtest.Job
	for _, v := range []float32{2, 3, 4, 1} {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, v)))
	}
	schedtest.Do(b, ownOutputs, jobs...)
	schedtest.Numbers(t, jobs[0], 0, []int64{1, 2}, float32(2), 2)
	schedtest.Numbers(t, jobs[1], 0, []int64{1, 3}, float32(3), 3, 3)
	schedtest.Numbers(t, jobs[3], 0, []int64{1, 1}, float32(1))
	if jobs[2].Err == nil || jobs[2].Err.Error() != "four" || jobs[2].Out[0].Present() {
		t.Errorf("work 2: error %v, want its own and no output", jobs[2].Err)
	}
	for _, i := range []int{0, 1, 3} {
		jobs[i].Release()
	}
	one := b.Job(1, b.Floats([]int64{1, 1}, 3))
	schedtest.Do(b, ownOutputs, one)
	schedtest.Numbers(t, one, 0, []int64{1, 3}, float32(3), 3, 3)
	one.Release()
}

// TestWrongOwnOutputs checks that an output which does not fit fails its request alone.
func TestWrongOwnOutputs(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Outputs[0].Dims = tensor.Of(2)
	b := schedtest.NewBench(t, sig, nil)
	good, bad := b.Job(1, b.Floats([]int64{1, 1}, 2)), b.Job(1, b.Floats([]int64{1, 1}, 3))
	schedtest.Do(b, ownOutputs, good, bad)
	schedtest.Numbers(t, good, 0, []int64{1, 2}, float32(2), 2)
	if bad.Err == nil || bad.Out[0].Present() {
		t.Errorf("error %v, want one and no output", bad.Err)
	}
	good.Release()
}
