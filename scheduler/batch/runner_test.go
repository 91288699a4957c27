package batch_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// put returns a model that writes a tensor of any type, shape and size.
func put(d tensor.DType, size int, dims ...int64) schedtest.Model {
	return func(b *backends.Batch) error {
		out, err := tensor.NewBytes(b.Allocator, tensor.Of(dims...), size)
		if err != nil {
			return err
		}
		clear(out.Bytes())
		out.DType = d
		b.SetOutput(0, out)
		return nil
	}
}

// TestWrongOutputs checks that a model whose outputs differ from its signature fails the batch, of one task or of
// two, with a text that says how.
func TestWrongOutputs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		dtype tensor.DType
		works int
		model schedtest.Model
		want  string
	}{
		{"type", tensor.FP32, 1, put(tensor.Int32, 8, 1, 2), "output 'OUTPUT0' of model 'm' has data-type 'INT32', expected 'FP32'"},
		{"rows of one", tensor.FP32, 1, put(tensor.FP32, 16, 2, 2), "output 'OUTPUT0' of model 'm' has shape [2,2] for a batch of 1, expected [-1,2]"},
		{"rows of two", tensor.FP32, 2, put(tensor.FP32, 8, 1, 2), "output 'OUTPUT0' of model 'm' has shape [1,2] for a batch of 2, expected [-1,2]"},
		{"extent", tensor.FP32, 2, put(tensor.FP32, 24, 2, 3), "output 'OUTPUT0' of model 'm' has shape [2,3] for a batch of 2, expected [-1,2]"},
		{"rank", tensor.FP32, 2, put(tensor.FP32, 8, 2), "output 'OUTPUT0' of model 'm' has shape [2] for a batch of 2, expected [-1,2]"},
		{"no rank", tensor.FP32, 1, put(tensor.FP32, 4), "output 'OUTPUT0' of model 'm' has shape [] for a batch of 1, expected [-1,2]"},
		{"too few bytes", tensor.FP32, 2, put(tensor.FP32, 12, 2, 2), "output 'OUTPUT0' of model 'm' has 12 bytes, expected those of shape [2,2]"},
		{"too many bytes", tensor.FP32, 1, put(tensor.FP32, 12, 1, 2), "output 'OUTPUT0' of model 'm' has 12 bytes, expected those of shape [1,2]"},
		{"too few elements", tensor.Bytes, 2, put(tensor.Bytes, 12, 2, 2), "output 'OUTPUT0' of model 'm' holds fewer elements than its shape [2,2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tc.dtype, 2))
			sig.Inputs[0].DType = tensor.FP32
			b := schedtest.NewBench(t, sig, nil)
			var jobs []*schedtest.Job
			for range tc.works {
				jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 2}, 1, 2)))
			}
			schedtest.Do(b, tc.model, jobs...)
			for i, j := range jobs {
				if j.Err == nil || j.Err.Error() != tc.want || status.CodeOf(j.Err) != status.Internal {
					t.Errorf("work %d: got error %v (%v), want %q", i, j.Err, status.CodeOf(j.Err), tc.want)
				}
				if j.Out[0].Present() {
					t.Errorf("work %d failed and has an output", i)
					j.Release()
				}
			}
		})
	}
}

// TestMissingOutput checks that an absent output is no failure.
func TestMissingOutput(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1), schedtest.Port("INPUT1", tensor.FP32, 1)), nil)
	var jobs []*schedtest.Job
	for range 2 {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, 1), b.Floats([]int64{1, 1}, 2)))
	}
	schedtest.Do(b, func(batch *backends.Batch) error {
		batch.SetOutput(1, batch.In[1].Retain())
		return nil
	}, jobs...)
	for _, j := range jobs {
		schedtest.Numbers[float32](t, j, 1, []int64{1, 1}, 2)
		if j.Out[0].Present() {
			t.Error("an output came out of nothing")
		}
		j.Release()
	}
}

// TestFailOfRows checks that a failure of any row of a task fails that task, that its first failure is kept and
// that rows beyond the batch fail no task.
func TestFailOfRows(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	jobs := []*schedtest.Job{
		b.Job(1, b.Floats([]int64{1, 1}, 1)),
		b.Job(3, b.Floats([]int64{3, 1}, 2, 3, 4)),
		b.Job(1, b.Floats([]int64{1, 1}, 5)),
	}
	schedtest.Do(b, func(batch *backends.Batch) error {
		batch.Fail(3, status.Errorf(status.InvalidArg, "row 3"))
		batch.Fail(1, status.Errorf(status.InvalidArg, "row 1"))
		batch.Fail(5, status.Errorf(status.InvalidArg, "row 5"))
		batch.Fail(-1, status.Errorf(status.InvalidArg, "row -1"))
		return schedtest.Copy(batch)
	}, jobs...)
	schedtest.Numbers[float32](t, jobs[0], 0, []int64{1, 1}, 1)
	schedtest.Numbers[float32](t, jobs[2], 0, []int64{1, 1}, 5)
	if err := jobs[1].Err; err == nil || err.Error() != "row 3" || jobs[1].Out[0].Present() {
		t.Errorf("got error %v, want that of row 3", err)
	}
	for _, j := range jobs {
		j.Release()
	}
	if n, _ := b.Stats.Failures[telemetry.Backend].Load(); n != 1 || b.Stats.Requests().Count != 2 || b.Stats.Rows() != 2 {
		t.Errorf("counted %d failures, %d successes of %d rows", n, b.Stats.Requests().Count, b.Stats.Rows())
	}
}

// TestCancelledByModel checks that a model which stops because its client disconnected counts as cancelled, not as
// failed.
func TestCancelledByModel(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	ctx, cancel := context.WithCancel(t.Context())
	j := b.Job(1, b.Floats([]int64{1, 1}, 1))
	j.Ctx = ctx
	schedtest.Do(b, func(batch *backends.Batch) error {
		cancel()
		return batch.Requests[0].Ctx.Err()
	}, j)
	n, _ := b.Stats.Failures[telemetry.Canceled].Load()
	if status.CodeOf(j.Err) != status.Cancelled || n != 1 {
		t.Errorf("error %v, %d counted", j.Err, n)
	}
}

// TestWithoutBatching checks a model whose tensors carry no batch dimension.
func TestWithoutBatching(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(0, schedtest.Port("INPUT0", tensor.FP32, -1), schedtest.Port("INPUT1", tensor.FP32)), nil)
	j := b.Job(1, b.Floats([]int64{3}, 1, 2, 3), b.Floats(nil, 4))
	schedtest.Do(b, schedtest.Copy, j)
	schedtest.Numbers[float32](t, j, 0, []int64{3}, 1, 2, 3)
	schedtest.Numbers[float32](t, j, 1, nil, 4)
	j.Release()
}
