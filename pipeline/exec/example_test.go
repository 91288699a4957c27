package exec_test

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
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
)

// doubler doubles the numbers of its input.
type doubler struct{}

func (doubler) Execute(_ context.Context, b *backends.Batch) error {
	out, err := tensor.New(b.Allocator, tensor.FP32, b.In[0].Shape)
	if err != nil {
		return err
	}
	for i, x := range tensor.Slice[float32](&b.In[0]) {
		tensor.Slice[float32](&out)[i] = 2 * x
	}
	b.SetOutput(0, out)
	return nil
}

func (doubler) Close() error { return nil }

// A plain model is a plan of one node, whose target is the model's scheduler.
func ExampleExecutor() {
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.FP32, Dims: tensor.Of(-1)}}
	}
	sig := &config.Signature{Model: "double", Version: 1, Inputs: port("x"), Outputs: port("y")}
	workers, memory := scheduler.NewWorkers(), tensor.NewPool()
	defer workers.Close()
	runner := batch.NewRunner(batch.Settings{
		Signature: sig, Stats: &telemetry.Model{Name: "double"}, Alloc: memory, Log: slog.New(slog.DiscardHandler),
	})
	double := direct.NewInline(direct.Settings{Runner: runner, Instances: []backends.Instance{doubler{}}})
	x := exec.New(exec.Settings{Plan: plan.Single(sig), Targets: []scheduler.Scheduler{double}, Workers: workers})

	in, err := tensor.New(memory, tensor.FP32, tensor.Of(3))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	copy(tensor.Slice[float32](&in), []float32{1, 2, 3})
	req, call := infer.NewRequest(), infer.NewCall()
	req.Model, req.Inputs = "double", append(req.Inputs, infer.Named{Name: "x", Tensor: in})
	x.Submit(context.Background(), req, call)
	resp, err := call.Wait()
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	fmt.Fprintln(os.Stdout, tensor.Slice[float32](resp.Output("y")))
	resp.Release()
	fmt.Fprintln(os.Stdout, x.Drain(context.Background()))
	// Output:
	// [2 4 6]
	// <nil>
}
