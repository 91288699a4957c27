package schedtest

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// Everything is a policy that takes all tasks of a view, whatever their shapes.
type Everything struct{}

// Decide implements scheduler.Policy.
func (Everything) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items {
		scratch = append(scratch, int32(i))
	}
	return scheduler.Decision{Take: scratch}
}

// NewQueue returns a queue with the policy Everything over n instances of m.
func NewQueue(b *Bench, m Model, n int) scheduler.Scheduler {
	return queue.New(queue.Settings{
		Runner: b.Runner, Policy: Everything{}, Instances: slices.Repeat([]backends.Instance{m}, n), Workers: b.Workers,
	})
}

// Do executes the jobs, enqueued as one list, and waits for them.
func Do(b *Bench, m Model, jobs ...*Job) {
	b.Submit(NewQueue(b, m, 1), jobs...)
	Wait(jobs...)
}

// Port declares an input or output.
func Port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

// Mirror returns the signature of a model with an output OUTPUTi like each INPUTi.
func Mirror(maxBatch int, inputs ...config.Port) *config.Signature {
	s := &config.Signature{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: inputs}
	for _, in := range inputs {
		in.Name, in.Optional = "OUT"+in.Name[len("IN"):], false
		s.Outputs = append(s.Outputs, in)
	}
	return s
}

// Sizes returns the number of tasks of each completed batch.
func Sizes(b *Bench) []int {
	var n []int
	for _, batch := range b.Batches() {
		n = append(n, len(batch))
	}
	return n
}

// Strings returns the elements of a BYTES tensor.
func Strings(t *tensor.Tensor) []string {
	var list []string
	for rest := t.Bytes(); len(rest) > 0; {
		var elem []byte
		var ok bool
		if elem, rest, ok = tensor.NextBytes(rest); !ok {
			return append(list, "(cut)")
		}
		list = append(list, string(elem))
	}
	return list
}

// Numbers fails the test unless the job succeeded with an output of this shape and values.
func Numbers[T tensor.Number](t *testing.T, j *Job, port int, shape []int64, values ...T) {
	t.Helper()
	if j.Err != nil {
		t.Errorf("unexpected error %v", j.Err)
		return
	}
	out := &j.Out[port]
	if got := tensor.Slice[T](out); !out.Shape.Equal(tensor.Of(shape...)) || !slices.Equal(got, values) {
		t.Errorf("output %d is %s %v, want %v %v", port, out.Shape, got, shape, values)
	}
}
