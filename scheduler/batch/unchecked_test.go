package batch_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// freely returns an output of a different form for each request: by its first value v, v rows of INT32 [v, 2], or
// for 0 a scalar FP64.
func freely(b *backends.Batch) error {
	for i := range b.Requests {
		q := &b.Requests[i]
		v := int64(tensor.Slice[float32](&b.In[0])[q.First])
		d, shape := tensor.Int32, tensor.Of(v, 2)
		if v == 0 {
			d, shape = tensor.FP64, tensor.Of()
		}
		out, err := tensor.New(b.Allocator, d, shape)
		if err != nil {
			return err
		}
		clear(out.Bytes())
		if len(b.Requests) == 1 {
			b.SetOutput(0, out)
		} else {
			q.Out = []tensor.Tensor{out}
		}
	}
	return nil
}

// TestFreeOutputs checks that outputs which are Unchecked keep their data types, shapes and rows, in a batch of several requests
// and in one of one.
func TestFreeOutputs(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Outputs[0].Unchecked = true
	b := schedtest.NewBench(t, sig, nil)
	for _, values := range [][]float32{{3, 0, 1}, {3}, {0}} {
		var jobs []*schedtest.Job
		for _, v := range values {
			jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, v)))
		}
		schedtest.Do(b, freely, jobs...)
		for i, v := range values {
			if v == 0 {
				schedtest.Numbers(t, jobs[i], 0, nil, float64(0))
			} else {
				schedtest.Numbers(t, jobs[i], 0, []int64{int64(v), 2}, make([]int32, 2*int(v))...)
			}
			jobs[i].Release()
		}
	}
}

// TestFreeRaggedOutput checks a batch of one request that is formed nevertheless, because its input is ragged.
func TestFreeRaggedOutput(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, -1))
	sig.Inputs[0].Unbatched, sig.Outputs[0].Unchecked, sig.Outputs[0].Unbatched = true, true, false
	b := schedtest.NewBench(t, sig, nil)
	j := b.Job(1, b.Floats([]int64{1, 1}, 3))
	schedtest.Do(b, freely, j)
	schedtest.Numbers(t, j, 0, []int64{3, 2}, make([]int32, 6)...)
	j.Release()
}

// TestFreeOutputsOfBatch checks that outputs of several requests together must be as declared, because their rows
// assign them to requests, and that a size which contradicts a shape fails its request.
func TestFreeOutputsOfBatch(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Outputs[0].Unchecked = true
	for want, m := range map[string]schedtest.Model{
		"output 'OUTPUT0' of model 'm' has data-type 'INT32', expected 'FP32'": func(b *backends.Batch) error {
			_, err := b.Alloc(0, tensor.Int32, tensor.Of(int64(b.Rows), 1))
			return err
		},
		"output 'OUTPUT0' of model 'm' has 4 bytes, expected those of shape [1,2]": func(b *backends.Batch) error {
			for i := range b.Requests {
				out, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(1))
				if err != nil {
					return err
				}
				out.Shape = tensor.Of(1, 2)
				b.Requests[i].Out = []tensor.Tensor{out}
			}
			return nil
		},
	} {
		b := schedtest.NewBench(t, sig, nil)
		jobs := []*schedtest.Job{b.Job(1, b.Floats([]int64{1, 1}, 1)), b.Job(1, b.Floats([]int64{1, 1}, 2))}
		schedtest.Do(b, m, jobs...)
		for _, j := range jobs {
			if j.Err == nil || j.Err.Error() != want {
				t.Errorf("error %v, want %q", j.Err, want)
			}
		}
	}
}
