package batch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// raggedModel is a model with a ragged input INPUT0, which is given back request by
// request, and one computed input of the given kind in front of it.
func raggedModel(kind modelconfig.BatchInput_Kind, d tensor.DType, dims ...int64) *config.Signature {
	s := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, dims...))
	s.Inputs[0].Unbatched, s.Outputs[0].Unbatched = true, true
	s.Scattered = []config.Scattered{{Output: 0, Source: 0}}
	s.Computed = []config.Computed{{Name: "C", DType: d, Kind: kind, Source: 0, At: 0}}
	return s
}

func values(t *tensor.Tensor) []float64 {
	var list []float64
	if t.DType == tensor.FP32 {
		for _, v := range tensor.Slice[float32](t) {
			list = append(list, float64(v))
		}
		return list
	}
	for _, v := range tensor.Slice[int32](t) {
		list = append(list, float64(v))
	}
	return list
}

// TestComputedInputs checks what each kind makes of three requests, of one row with
// three elements, of two rows with four each, and of one row with five.
func TestComputedInputs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind  modelconfig.BatchInput_Kind
		shape []int64
		want  []float64
	}{
		{modelconfig.BatchInput_BATCH_ELEMENT_COUNT, []int64{3}, []float64{3, 8, 5}},
		{modelconfig.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT, []int64{3}, []float64{3, 11, 16}},
		{modelconfig.BatchInput_BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, []int64{4}, []float64{0, 3, 11, 16}},
		{modelconfig.BatchInput_BATCH_MAX_ELEMENT_COUNT_AS_SHAPE, []int64{8}, make([]float64, 8)},
		{modelconfig.BatchInput_BATCH_ITEM_SHAPE, []int64{4, 2}, []float64{1, 3, 2, 2, 2, 2, 5, 1}},
		{modelconfig.BatchInput_BATCH_ITEM_SHAPE_FLATTEN, []int64{8}, []float64{1, 3, 2, 2, 2, 2, 5, 1}},
	} {
		for _, d := range []tensor.DType{tensor.Int32, tensor.FP32} {
			t.Run(fmt.Sprint(tc.kind, d), func(t *testing.T) {
				t.Parallel()
				b := schedtest.NewBench(t, raggedModel(tc.kind, d, -1, -1), nil)
				one := b.Job(1, b.Floats([]int64{1, 1, 3}, 1, 2, 3))
				two := b.Job(2, b.Floats([]int64{2, 2, 2}, 4, 5, 6, 7, 8, 9, 10, 11))
				three := b.Job(1, b.Floats([]int64{1, 5, 1}, 12, 13, 14, 15, 16))
				schedtest.Do(b, func(batch *backends.Batch) error {
					c, x := &batch.In[0], &batch.In[1]
					if got := values(c); c.DType != d || !c.Shape.Equal(tensor.Of(tc.shape...)) || !slices.Equal(got, tc.want) {
						t.Errorf("computed %s %s %v, want %v %v", c.DType, c.Shape, got, tc.shape, tc.want)
					}
					if !x.Shape.Equal(tensor.Of(16)) || batch.Rows != 4 {
						t.Errorf("ragged input %s of %d rows", x.Shape, batch.Rows)
					}
					batch.SetOutput(0, x.Retain())
					return nil
				}, one, two, three)
				schedtest.Numbers[float32](t, one, 0, []int64{1, 1, 3}, 1, 2, 3)
				schedtest.Numbers[float32](t, two, 0, []int64{2, 2, 2}, 4, 5, 6, 7, 8, 9, 10, 11)
				schedtest.Numbers[float32](t, three, 0, []int64{1, 5, 1}, 12, 13, 14, 15, 16)
				for _, j := range []*schedtest.Job{one, two, three} {
					j.Release()
				}
			})
		}
	}
}

// TestRaggedAlone checks that a batch of one is formed like any other.
func TestRaggedAlone(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, raggedModel(modelconfig.BatchInput_BATCH_ELEMENT_COUNT, tensor.Int32, -1), nil)
	j := b.Job(2, b.Floats([]int64{2, 2}, 1, 2, 3, 4))
	schedtest.Do(b, func(batch *backends.Batch) error {
		if c, x := &batch.In[0], &batch.In[1]; !slices.Equal(values(c), []float64{4}) || !x.Shape.Equal(tensor.Of(4)) {
			t.Errorf("batch of %v and %s", values(c), x.Shape)
		}
		batch.SetOutput(0, batch.In[1].Retain())
		return nil
	}, j)
	schedtest.Numbers[float32](t, j, 0, []int64{2, 2}, 1, 2, 3, 4)
	j.Release()
}

// TestScatterOfOtherSize checks that an output whose size differs from that of the input it is split by fails the
// batch.
func TestScatterOfOtherSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 4, 6} {
		b := schedtest.NewBench(t, raggedModel(modelconfig.BatchInput_BATCH_ELEMENT_COUNT, tensor.Int32, -1), nil)
		j := b.Job(1, b.Floats([]int64{1, 5}, 1, 2, 3, 4, 5))
		schedtest.Do(b, put(tensor.FP32, int(size)*4, size), j)
		want := fmt.Sprintf("output 'OUTPUT0' of model 'm' has %d elements, expected those of input 'INPUT0' of the batch", size)
		if j.Err == nil || j.Err.Error() != want || status.CodeOf(j.Err) != status.Internal {
			t.Errorf("got %v, want %s", j.Err, want)
		}
	}
}

// TestRaggedFailure checks that every request of a failed batch is tried alone.
func TestRaggedFailure(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, raggedModel(modelconfig.BatchInput_BATCH_ELEMENT_COUNT, tensor.Int32, -1), nil)
	good, bad := b.Job(1, b.Floats([]int64{1, 1}, 1)), b.Job(1, b.Floats([]int64{1, 2}, 2, 13))
	schedtest.Do(b, func(batch *backends.Batch) error {
		if slices.Contains(tensor.Slice[float32](&batch.In[1]), 13) {
			return status.Errorf(status.InvalidArg, "unlucky")
		}
		batch.SetOutput(0, batch.In[1].Retain())
		return nil
	}, good, bad)
	schedtest.Numbers[float32](t, good, 0, []int64{1, 1}, 1)
	if bad.Err == nil || bad.Err.Error() != "unlucky" {
		t.Errorf("got error %v", bad.Err)
	}
	good.Release()
}

// TestShapeTensors checks that tasks share a batch when the values of a shape tensor are equal, and that the model
// receives it once.
func TestShapeTensors(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1), schedtest.Port("INPUT1", tensor.Int64, 2))
	sig.Inputs[1].ShapeTensor, sig.Outputs[1].ShapeTensor = true, true
	b := schedtest.NewBench(t, sig, nil)
	var jobs []*schedtest.Job
	for i, extent := range []int64{4, 5, 4, 4} {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i)), b.Ints([]int64{2}, 1, extent)))
	}
	schedtest.Do(b, func(batch *backends.Batch) error {
		if !batch.In[1].Shape.Equal(tensor.Of(2)) {
			t.Errorf("shape tensor has shape %s", batch.In[1].Shape)
		}
		return schedtest.Copy(batch)
	}, jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{3, 1}) && !slices.Equal(got, []int{1, 3}) {
		t.Errorf("batches of %v works, want 3 and 1", got)
	}
	for i, j := range jobs {
		schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(i))
		schedtest.Numbers(t, j, 1, []int64{2}, 1, []int64{4, 5, 4, 4}[i])
		j.Release()
	}
}

// TestOptionalGroups checks that tasks with different sets of inputs never join.
func TestOptionalGroups(t *testing.T) {
	t.Parallel()
	extra := schedtest.Port("INPUT1", tensor.FP32, 1)
	extra.Optional = true
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1), extra), nil)
	var jobs []*schedtest.Job
	for i := range 5 {
		second := tensor.Tensor{}
		if i%2 == 0 {
			second = b.Floats([]int64{1, 1}, float32(10*i))
		}
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i)), second))
	}
	schedtest.Do(b, func(batch *backends.Batch) error {
		for _, q := range batch.Requests {
			if q.Rows != 1 {
				t.Errorf("a request of %d rows", q.Rows)
			}
		}
		return schedtest.Copy(batch)
	}, jobs...)
	if got := schedtest.Sizes(b); !slices.Contains(got, 3) || !slices.Contains(got, 2) {
		t.Errorf("batches of %v works, want 3 and 2", got)
	}
	for i, j := range jobs {
		schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(i))
		if j.Out[1].Present() != (i%2 == 0) {
			t.Errorf("work %d has output 1: %t", i, j.Out[1].Present())
		}
		j.Release()
	}
}

// TestNoRows checks that a model which fails without rows is not executed without rows again: alone, among others,
// padded and ragged.
func TestNoRows(t *testing.T) {
	t.Parallel()
	fails := func(batch *backends.Batch) error {
		if batch.Rows == 0 {
			return status.Errorf(status.Internal, "there is nothing")
		}
		return schedtest.Copy(batch)
	}
	padded := map[string]string{"pad.INPUT0": "0", "unpad.OUTPUT0": "INPUT0"}
	for _, tc := range []struct {
		name   string
		params map[string]string
		rows   []int64
	}{
		{"alone", nil, []int64{0}},
		{"several", nil, []int64{0, 0}},
		{"among others", nil, []int64{2, 0, 1}},
		{"padded", padded, []int64{0, 3, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, -1, 2)), tc.params)
			var jobs []*schedtest.Job
			for _, n := range tc.rows {
				jobs = append(jobs, b.Job(int(n), b.Floats([]int64{n, 1, 2}, make([]float32, 2*n)...)))
			}
			schedtest.Do(b, fails, jobs...)
			for i, j := range jobs {
				extent := int64(1)
				if !slices.ContainsFunc(tc.rows, func(n int64) bool { return n > 0 }) {
					extent = 0 // no request has the extent
				}
				schedtest.Numbers(t, j, 0, []int64{tc.rows[i], extent, 2}, make([]float32, 2*tc.rows[i])...)
				j.Release()
			}
			if n, _ := b.Stats.Failures[telemetry.Backend].Load(); n != 0 {
				t.Errorf("%d failures counted", n)
			}
		})
	}
	b := schedtest.NewBench(t, raggedModel(modelconfig.BatchInput_BATCH_ELEMENT_COUNT, tensor.Int32, -1), nil)
	j := b.Job(0, b.Floats([]int64{0, 3}))
	schedtest.Do(b, func(*backends.Batch) error { return status.Errorf(status.Internal, "there is nothing") }, j)
	schedtest.Numbers[float32](t, j, 0, []int64{0, 3})
	j.Release()
}
