package batch_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestPadding(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, -1), schedtest.Port("INPUT1", tensor.Int64, -1)),
		map[string]string{"pad.INPUT0": "-1.5", "pad.INPUT1": "7", "unpad.OUTPUT0": "INPUT0", "unpad.OUTPUT1": "INPUT1", "other": "x"})
	a := b.Job(1, b.Floats([]int64{1, 2}, 1, 2), b.Ints([]int64{1, 3}, 1, 2, 3))
	c := b.Job(2, b.Floats([]int64{2, 3}, 3, 4, 5, 6, 7, 8), b.Ints([]int64{2, 4}, 4, 5, 6, 7, 8, 9, 10, 11))
	d := b.Job(1, b.Floats([]int64{1, 1}, 9), b.Ints([]int64{1, 2}, 12, 13))
	schedtest.Do(b, func(batch *backends.Batch) error {
		if got, want := tensor.Slice[float32](&batch.In[0]), []float32{1, 2, -1.5, 3, 4, 5, 6, 7, 8, 9, -1.5, -1.5}; !slices.Equal(got, want) {
			t.Errorf("gathered %v, want %v", got, want)
		}
		if got, want := tensor.Slice[int64](&batch.In[1]), []int64{1, 2, 3, 7, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 7, 7}; !slices.Equal(got, want) {
			t.Errorf("gathered %v, want %v", got, want)
		}
		return schedtest.Copy(batch)
	}, a, c, d)
	schedtest.Numbers[float32](t, a, 0, []int64{1, 2}, 1, 2)
	schedtest.Numbers[int64](t, a, 1, []int64{1, 3}, 1, 2, 3)
	schedtest.Numbers[float32](t, c, 0, []int64{2, 3}, 3, 4, 5, 6, 7, 8)
	schedtest.Numbers[int64](t, c, 1, []int64{2, 4}, 4, 5, 6, 7, 8, 9, 10, 11)
	schedtest.Numbers[float32](t, d, 0, []int64{1, 1}, 9)
	schedtest.Numbers[int64](t, d, 1, []int64{1, 2}, 12, 13)
	if a.Out[1].Buf != d.Out[1].Buf || a.Out[1].Buf != c.Out[1].Buf {
		t.Error("rows of one run are copied")
	}
	for _, j := range []*schedtest.Job{a, c, d} {
		j.Release()
	}
}

// TestPaddingInside checks the padding of a dimension that others follow.
func TestPaddingInside(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 2, -1, 2)), map[string]string{"pad.INPUT0": "0", "unpad.OUTPUT0": "INPUT0"})
	short := b.Job(1, b.Floats([]int64{1, 2, 1, 2}, 1, 2, 3, 4))
	long := b.Job(1, b.Floats([]int64{1, 2, 2, 2}, 5, 6, 7, 8, 9, 10, 11, 12))
	schedtest.Do(b, func(batch *backends.Batch) error {
		if got, want := tensor.Slice[float32](&batch.In[0]), []float32{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12}; !slices.Equal(got, want) {
			t.Errorf("gathered %v, want %v", got, want)
		}
		return schedtest.Share(batch)
	}, short, long)
	schedtest.Numbers[float32](t, short, 0, []int64{1, 2, 1, 2}, 1, 2, 3, 4)
	// One run is cut by looking at less of it, several must be copied together.
	if short.Out[0].Buf == long.Out[0].Buf {
		t.Error("runs are views where they cannot be")
	}
	schedtest.Numbers[float32](t, long, 0, []int64{1, 2, 2, 2}, 5, 6, 7, 8, 9, 10, 11, 12)
	short.Release()
	long.Release()
}

// TestUnpadLikeAbsent checks an output that is cut like an optional input which no task gives.
func TestUnpadLikeAbsent(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, -1), schedtest.Port("INPUT1", tensor.FP32, -1))
	sig.Inputs[1].Optional = true
	b := schedtest.NewBench(t, sig, map[string]string{"pad.INPUT0": "0", "pad.INPUT1": "0", "unpad.OUTPUT0": "INPUT1"})
	jobs := []*schedtest.Job{
		b.Job(1, b.Floats([]int64{1, 1}, 1), tensor.Tensor{}),
		b.Job(1, b.Floats([]int64{1, 2}, 2, 3), tensor.Tensor{}),
	}
	schedtest.Do(b, schedtest.Copy, jobs...)
	schedtest.Numbers[float32](t, jobs[0], 0, []int64{1, 2}, 1, 0)
	schedtest.Numbers[float32](t, jobs[1], 0, []int64{1, 2}, 2, 3)
	for _, j := range jobs {
		j.Release()
	}
}

// TestPadsEveryType checks the padding value of each type.
func TestPadsEveryType(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		dtype tensor.DType
		value string
		want  []byte
	}{
		{tensor.Bool, "1", []byte{1}},
		{tensor.Int8, "-2", []byte{0xfe}},
		{tensor.Uint8, "255", []byte{0xff}},
		{tensor.Int16, "-2", []byte{0xfe, 0xff}},
		{tensor.Uint16, "258", []byte{2, 1}},
		{tensor.Int32, "0", []byte{0, 0, 0, 0}},
		{tensor.Uint32, "1", []byte{1, 0, 0, 0}},
		{tensor.Int64, "-1", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{tensor.Uint64, "3", []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		{tensor.FP32, "1", []byte{0, 0, 0x80, 0x3f}},
		{tensor.FP64, "-2", []byte{0, 0, 0, 0, 0, 0, 0, 0xc0}},
	} {
		t.Run(tc.dtype.String(), func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tc.dtype, -1)), map[string]string{"pad.INPUT0": tc.value})
			row := func(n int64) tensor.Tensor {
				r, err := tensor.New(b.Alloc, tc.dtype, tensor.Of(1, n))
				if err != nil {
					t.Fatal(err)
				}
				clear(r.Bytes())
				return r
			}
			jobs := []*schedtest.Job{b.Job(1, row(1)), b.Job(1, row(2))}
			schedtest.Do(b, schedtest.Copy, jobs...)
			if got := jobs[0].Out[0].Bytes()[tc.dtype.Size():]; jobs[0].Err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("padding is % x, want % x (%v)", got, tc.want, jobs[0].Err)
			}
			for _, j := range jobs {
				j.Release()
			}
		})
	}
}

func TestNewPaddingRefuses(t *testing.T) {
	t.Parallel()
	sig := &config.Signature{
		Model: "m", MaxBatch: 4,
		Inputs: []config.Port{
			schedtest.Port("IDS", tensor.Int32, -1), schedtest.Port("FIXED", tensor.FP32, 3), schedtest.Port("TEXT", tensor.Bytes, -1), schedtest.Port("HALF", tensor.FP16, -1),
			schedtest.Port("MASK", tensor.Uint8, -1), schedtest.Port("X", tensor.FP32, 2, -1),
		},
		Outputs: []config.Port{schedtest.Port("Y", tensor.FP32, -1), schedtest.Port("Z", tensor.FP32, 4), schedtest.Port("S", tensor.Bytes, -1)},
	}
	for _, tc := range []struct {
		params map[string]string
		want   string
	}{
		{map[string]string{"pad.NONE": "0"}, "parameter 'pad.NONE' of model 'm' names no input"},
		{map[string]string{"pad.FIXED": "0"}, "parameter 'pad.FIXED' of model 'm': input 'FIXED' has no variable dimension, its dims are [3]"},
		{map[string]string{"pad.TEXT": "0"}, "parameter 'pad.TEXT' of model 'm' is '0': inputs of type BYTES cannot be padded"},
		{map[string]string{"pad.HALF": "0"}, "parameter 'pad.HALF' of model 'm' is '0': inputs of type FP16 cannot be padded"},
		{map[string]string{"pad.IDS": ""}, "parameter 'pad.IDS' of model 'm' is '': expected an integer of type INT32"},
		{map[string]string{"pad.IDS": "2147483648"}, "parameter 'pad.IDS' of model 'm' is '2147483648': expected an integer of type INT32"},
		{map[string]string{"pad.IDS": "1.5"}, "parameter 'pad.IDS' of model 'm' is '1.5': expected an integer of type INT32"},
		{map[string]string{"pad.MASK": "-1"}, "parameter 'pad.MASK' of model 'm' is '-1': expected an integer of type UINT8"},
		{map[string]string{"pad.X": "much"}, "parameter 'pad.X' of model 'm' is 'much': expected a number"},
		{map[string]string{"pad.IDS": "0", "unpad.NONE": "IDS"}, "parameter 'unpad.NONE' of model 'm' names no output"},
		{map[string]string{"pad.IDS": "0", "unpad.Y": "NONE"}, "parameter 'unpad.Y' of model 'm' is 'NONE', expected an input with a 'pad.INPUT' parameter"},
		{map[string]string{"pad.IDS": "0", "unpad.Y": "X"}, "parameter 'unpad.Y' of model 'm' is 'X', expected an input with a 'pad.INPUT' parameter"},
		{map[string]string{"unpad.Y": "IDS"}, "parameter 'unpad.Y' of model 'm' is 'IDS', expected an input with a 'pad.INPUT' parameter"},
		{map[string]string{"pad.IDS": "0", "unpad.Z": "IDS"}, "parameter 'unpad.Z' of model 'm': output 'Z' has no variable dimension of numbers, its dims are [4]"},
		{map[string]string{"pad.IDS": "0", "unpad.S": "IDS"}, "parameter 'unpad.S' of model 'm': output 'S' has no variable dimension of numbers, its dims are [-1]"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			p, err := batch.NewPadding(sig, tc.params)
			if err == nil || err.Error() != tc.want || p != nil {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	alone := *sig
	alone.MaxBatch = 0
	if _, err := batch.NewPadding(&alone, map[string]string{"pad.IDS": "0"}); err == nil || err.Error() != "model 'm' has parameters that pad inputs, but max_batch_size is 0" {
		t.Errorf("without batching: %v", err)
	}
	if p, err := batch.NewPadding(sig, map[string]string{"padding": "1"}); p != nil || err != nil {
		t.Errorf("without a rule: %v, %v", p, err)
	}
}
