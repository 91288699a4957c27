package batch_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestGatherCopiesRowsTogether(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 2), schedtest.Port("INPUT1", tensor.Int64, -1)), nil)
	one := b.Job(1, b.Floats([]int64{1, 2}, 1, 2), b.Ints([]int64{1, 1}, 10))
	two := b.Job(2, b.Floats([]int64{2, 2}, 3, 4, 5, 6), b.Ints([]int64{2, 1}, 20, 30))
	none := b.Job(0, b.Floats([]int64{0, 2}), b.Ints([]int64{0, 1}))
	last := b.Job(1, b.Floats([]int64{1, 2}, 7, 8), b.Ints([]int64{1, 1}, 40))
	schedtest.Do(b, func(batch *backends.Batch) error {
		in := tensor.Slice[float32](&batch.In[0])
		if batch.Rows != 4 || !slices.Equal(in, []float32{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("batch of %d rows %v", batch.Rows, in)
		}
		for i, want := range [][2]int{{0, 1}, {1, 2}, {3, 0}, {3, 1}} {
			if q := batch.Requests[i]; q.First != want[0] || q.Rows != want[1] {
				t.Errorf("member %d has rows %d+%d, want %v", i, q.First, q.Rows, want)
			}
		}
		return schedtest.Copy(batch)
	}, one, two, none, last)
	schedtest.Numbers[float32](t, one, 0, []int64{1, 2}, 1, 2)
	schedtest.Numbers[float32](t, two, 0, []int64{2, 2}, 3, 4, 5, 6)
	schedtest.Numbers[float32](t, none, 0, []int64{0, 2})
	schedtest.Numbers[float32](t, last, 0, []int64{1, 2}, 7, 8)
	schedtest.Numbers[int64](t, two, 1, []int64{2, 1}, 20, 30)
	schedtest.Numbers[int64](t, last, 1, []int64{1, 1}, 40)
	// The outputs are views of what the model put out, not copies.
	if one.Out[0].Buf != last.Out[0].Buf || last.Out[0].Off != 24 {
		t.Errorf("outputs at %d and %d of buffers %p and %p, want views of one", one.Out[0].Off, last.Out[0].Off, one.Out[0].Buf, last.Out[0].Buf)
	}
	for _, j := range []*schedtest.Job{one, two, none, last} {
		j.Release()
	}
}

// view returns rows first..first+n of t.
func view(t *tensor.Tensor, first, n int) tensor.Tensor {
	v := t.Retain()
	row := t.Len / int(t.Shape.Dim(0))
	v.Off, v.Len = t.Off+first*row, n*row
	v.Shape.SetDim(0, int64(n))
	return v
}

func TestGatherJoinsViews(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		spans [][2]int // first row and rows of each work
		want  []float32
		joins bool
	}{
		{"adjacent", [][2]int{{0, 1}, {1, 2}, {3, 1}}, []float32{0, 1, 2, 3}, true},
		{"a part", [][2]int{{1, 1}, {2, 1}}, []float32{1, 2}, true},
		{"a gap", [][2]int{{0, 1}, {2, 2}}, []float32{0, 2, 3}, false},
		{"other order", [][2]int{{2, 2}, {0, 2}}, []float32{2, 3, 0, 1}, false},
		{"overlap", [][2]int{{0, 2}, {1, 2}}, []float32{0, 1, 1, 2}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
			whole := b.Floats([]int64{4, 1}, 0, 1, 2, 3)
			var jobs []*schedtest.Job
			for _, s := range tc.spans {
				jobs = append(jobs, b.Job(s[1], view(&whole, s[0], s[1])))
			}
			before := b.Alloc.Allocs()
			schedtest.Do(b, func(batch *backends.Batch) error {
				in := &batch.In[0]
				if got := tensor.Slice[float32](in); !slices.Equal(got, tc.want) || in.Shape.Dim(0) != int64(len(tc.want)) {
					t.Errorf("gathered %s %v, want %v", in.Shape, got, tc.want)
				}
				if joined := in.Buf == whole.Buf; joined != tc.joins {
					t.Errorf("joined without a copy: %v, want %v", joined, tc.joins)
				}
				return schedtest.Share(batch)
			}, jobs...)
			if n := b.Alloc.Allocs() - before; (n == 0) != tc.joins {
				t.Errorf("%d allocations", n)
			}
			at := 0
			for i, j := range jobs {
				n := tc.spans[i][1]
				schedtest.Numbers(t, j, 0, []int64{int64(n), 1}, tc.want[at:at+n]...)
				at += n
				j.Release()
			}
			whole.Release()
		})
	}
}

func TestGatherBytes(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.Bytes, 2)), nil)
	jobs := []*schedtest.Job{
		b.Job(1, b.Strings([]int64{1, 2}, "a", "")),
		b.Job(2, b.Strings([]int64{2, 2}, "long enough", "b", "", "c")),
		b.Job(0, b.Strings([]int64{0, 2})),
		b.Job(1, b.Strings([]int64{1, 2}, "", "z")),
	}
	schedtest.Do(b, schedtest.Copy, jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{4}) {
		t.Fatalf("batches of %v works", got)
	}
	for i, want := range [][]string{{"a", ""}, {"long enough", "b", "", "c"}, nil, {"", "z"}} {
		out := &jobs[i].Out[0]
		if got := schedtest.Strings(out); jobs[i].Err != nil || !slices.Equal(got, want) || out.Shape.Dim(0) != int64(len(want)/2) {
			t.Errorf("work %d: got %s %q, %v; want %q", i, out.Shape, got, jobs[i].Err, want)
		}
		jobs[i].Release()
	}
}

// TestAbsentInputs checks that tasks with different optional inputs do not share a batch, even when the policy puts
// them together, and that all succeed.
func TestAbsentInputs(t *testing.T) {
	t.Parallel()
	second := schedtest.Port("INPUT1", tensor.FP32, 1)
	second.Optional = true
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1), second), nil)
	with := func(v float32) *schedtest.Job {
		return b.Job(1, b.Floats([]int64{1, 1}, v), b.Floats([]int64{1, 1}, -v))
	}
	without := func(v float32) *schedtest.Job { return b.Job(1, b.Floats([]int64{1, 1}, v), tensor.Tensor{}) }
	jobs := []*schedtest.Job{with(1), without(2), with(3), without(4)}
	schedtest.Do(b, schedtest.Copy, jobs...)
	if got := b.Batches(); len(got) != 2 || !slices.Equal(got[0], []*schedtest.Job{jobs[0], jobs[2]}) || !slices.Equal(got[1], []*schedtest.Job{jobs[1], jobs[3]}) {
		t.Errorf("batches %v of %v", got, jobs)
	}
	for i, j := range jobs {
		v := float32(i + 1)
		schedtest.Numbers(t, j, 0, []int64{1, 1}, v)
		if i%2 == 0 {
			schedtest.Numbers(t, j, 1, []int64{1, 1}, -v)
		} else if j.Out[1].Present() {
			t.Errorf("work %d has an output without an input", i)
		}
		j.Release()
	}
}

// TestShapesNeverMix checks a policy that puts tasks of different shapes together, as one does when hashes of
// unequal shapes are equal.
func TestShapesNeverMix(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, -1, -1)), nil)
	shapes := [][]int64{{1, 1, 6}, {1, 2, 3}, {1, 1, 6}, {2, 3, 2}, {1, 6, 1}, {1, 2, 3}}
	var jobs []*schedtest.Job
	for _, s := range shapes {
		values := make([]float32, s[0]*s[1]*s[2])
		for i := range values {
			values[i] = float32(i)
		}
		jobs = append(jobs, b.Job(int(s[0]), b.Floats(s, values...)))
	}
	schedtest.Do(b, schedtest.Copy, jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{2, 2, 1, 1}) {
		t.Errorf("batches of %v works", got)
	}
	for i, j := range jobs {
		if j.Err != nil || !j.Out[0].Shape.Equal(tensor.Of(shapes[i]...)) {
			t.Errorf("work %d: output %s, error %v; want shape %v", i, j.Out[0].Shape, j.Err, shapes[i])
		}
		j.Release()
	}
}
