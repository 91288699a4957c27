package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// doubler is an instance of a model that doubles INT32 numbers in place.
type doubler struct{}

func (doubler) Execute(_ context.Context, b *backends.Batch) error {
	fmt.Fprintln(os.Stdout, "batch of", b.Rows)
	numbers := tensor.Slice[int32](&b.In[0])
	for i := range numbers {
		numbers[i] *= 2
	}
	b.SetOutput(0, b.In[0].Retain())
	return nil
}

func (doubler) Close() error { return nil }

// four is a policy of at most four tasks of a shape.
type four struct{}

func (four) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items[:min(4, len(v.Items))] {
		scratch = append(scratch, int32(i))
	}
	return scheduler.Decision{Take: scratch}
}

// printer is a Completer that prints the outputs.
type printer struct{ done int }

func (p *printer) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		fmt.Fprintln(os.Stdout, tensor.Slice[int32](&w.Out[0])[0], w.Err)
		tensor.ReleaseAll(w.Out)
		p.done++
	}
}

func Example() {
	port := config.Port{Name: "X", DType: tensor.Int32, Dims: tensor.Of(1)}
	sig := &config.Signature{Model: "double", MaxBatch: 8, Inputs: []config.Port{port}, Outputs: []config.Port{port}}
	memory, workers := tensor.NewPool(), scheduler.NewWorkers()
	defer workers.Close()
	q := queue.New(queue.Settings{
		Runner: batch.NewRunner(batch.Settings{
			Signature: sig, Stats: &telemetry.Model{Name: "double"}, Alloc: memory, Log: slog.New(slog.DiscardHandler),
		}),
		Policy: four{}, Instances: []backends.Instance{doubler{}}, Workers: workers,
	})
	loop, out := scheduler.NewRunLoop(workers), &printer{}
	for i := range int32(6) {
		in, err := tensor.New(memory, tensor.Int32, tensor.Of(1, 1))
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			return
		}
		tensor.Slice[int32](&in)[0] = i
		loop.Stage(q, &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{To: out, Rows: 1, Meta: &infer.Meta{}, Ctx: context.Background(), In: []tensor.Tensor{in}},
			TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
		})
	}
	loop.Dispatch()
	loop.RunUntil(func() bool { return out.done == 6 })
	fmt.Fprintln(os.Stdout, q.Drain(context.Background()), q.Close())
	// Output:
	// batch of 4
	// 0 <nil>
	// 2 <nil>
	// 4 <nil>
	// 6 <nil>
	// batch of 2
	// 8 <nil>
	// 10 <nil>
	// <nil> <nil>
}

func ExampleTaskList() {
	var list scheduler.TaskList
	list.Push(&scheduler.Task{TaskRequest: scheduler.TaskRequest{Rows: 1}})
	list.Push(&scheduler.Task{TaskRequest: scheduler.TaskRequest{Rows: 3}})
	list.Seal()
	fmt.Fprintln(os.Stdout, list.Len(), list.Rows(), list.Sealed())
	list.Pop()
	fmt.Fprintln(os.Stdout, list.Len(), list.Rows(), list.Sealed())
	// Output:
	// 2 4 true
	// 1 3 false
}
