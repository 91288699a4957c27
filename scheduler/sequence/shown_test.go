package sequence_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// TestShownState checks a state that is also a public output: the request receives it, and its copy does not change
// with the next request, even where that overwrites the state.
func TestShownState(t *testing.T) {
	t.Parallel()
	add := func(b *backends.Batch) error {
		in, old := tensor.Slice[int32](&b.In[0]), tensor.Slice[int32](&b.In[1])
		out, err := b.Alloc(0, tensor.Int32, b.In[1].Shape)
		if err != nil {
			return err
		}
		next, err := b.AllocInPlace(1, tensor.Int32, b.In[1].Shape)
		if err != nil {
			return err
		}
		for i := range in {
			sum := old[i] + in[i]
			tensor.Slice[int32](out)[i], tensor.Slice[int32](next)[i] = sum, sum
		}
		return nil
	}
	for name, state := range map[string]string{"own memory": "", "one memory": "use_same_buffer_for_input_output: true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &remembering{dtype: tensor.Int32, dims: []int64{1}, strategy: "oldest {}", state: state, model: add, shown: true}
			b, s := m.make(t, 2)
			var jobs []*schedtest.Job
			for k := range int32(3) {
				for id := range uint64(2) {
					jobs = append(jobs, number(t, b, infer.Sequence{ID: id + 1, Start: k == 0, End: k == 2}, k+1))
				}
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for i, want := range []int32{1, 1, 3, 3, 6, 6} {
				j := jobs[i]
				if j.Err != nil || len(j.Out) != 2 {
					t.Fatalf("request %d has %d outputs, error %v", i, len(j.Out), j.Err)
				}
				if got := tensor.Slice[int32](&j.Out[1])[0]; got != want {
					t.Errorf("request %d has the state %d, want %d", i, got, want)
				}
				sum(t, j, want)
			}
		})
	}
}
