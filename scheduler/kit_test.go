package scheduler_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a policy that takes all it sees, whatever the shapes.
type everything struct{}

func (everything) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items {
		scratch = append(scratch, int32(i))
	}
	return scheduler.Decision{Take: scratch}
}

// station returns one over n instances of m that takes everything at once.
func station(b *schedtest.Bench, m schedtest.Model, n int) scheduler.Scheduler {
	return scheduler.NewQueue(scheduler.QueueSettings{
		Runner: b.Runner, Policy: everything{}, Instances: slices.Repeat([]backends.Instance{m}, n), Workers: b.Workers,
	})
}

// do runs the jobs as they come, in one list.
func do(b *schedtest.Bench, m schedtest.Model, jobs ...*schedtest.Job) {
	b.Submit(station(b, m, 1), jobs...)
	schedtest.Wait(jobs...)
}

// port declares an input or output.
func port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

// mirror returns the signature of a model with an output OUTPUTi like each INPUTi.
func mirror(maxBatch int, inputs ...config.Port) *config.Signature {
	s := &config.Signature{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: inputs}
	for _, in := range inputs {
		in.Name, in.Optional = "OUT"+in.Name[len("IN"):], false
		s.Outputs = append(s.Outputs, in)
	}
	return s
}

// sizes returns how many works each batch had.
func sizes(b *schedtest.Bench) []int {
	var n []int
	for _, batch := range b.Batches() {
		n = append(n, len(batch))
	}
	return n
}

func strings(t *tensor.Tensor) []string {
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

// numbers fails the test unless the job succeeded with an output of this shape and values.
func numbers[T tensor.Number](t *testing.T, j *schedtest.Job, port int, shape []int64, values ...T) {
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
