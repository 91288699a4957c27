//go:build cgo

package batch_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// scratchModel is a deviceModel that also works with memory of its own, of 100 bytes.
type scratchModel struct{ deviceModel }

func (m *scratchModel) Execute(ctx context.Context, b *backends.Batch) error {
	own, err := m.stream.Alloc(100)
	if err != nil {
		return err
	}
	own.Release()
	return m.deviceModel.Execute(ctx, b)
}

// spills collects the spills of traces.
type spills struct{ list []string }

func (*spills) Batch(*tracing.Batch) {}

func (s *spills) Trace(x *tracing.Trace) {
	r := x.Record()
	for i := range r.Events {
		if e := &r.Events[i]; e.Kind == tracing.EventSpill {
			s.list = append(s.list, fmt.Sprintf("%s: step %d tensor '%s' %d %s to %s", r.Request, e.Node, e.Tensor, e.Bytes, e.From, e.To))
		}
	}
}

// TestSpillsOfBatch checks what traces of a batch have of memory for which the pool of the device has no room: the joined input and the
// output once in each traced request, and what the model works with; nothing once there is room.
func TestSpillsOfBatch(t *testing.T) { //nolint:paralleltest // uses the driver of the process
	driver, err := cuda.Open(cudatest.Library(t))
	must(t, err)
	devices, err := driver.Devices(cuda.Options{Only: []int{0}})
	must(t, err)
	host := tensor.NewPool()
	pinned := cuda.NewPinned(devices[0], 64<<20, host)
	devices[0].SpillTo(pinned, 8)
	places := tensor.NewPlaces(host)
	must(t, places.Add(devices[0]))
	mover, workers := batch.NewMover(places), scheduler.NewWorkers()
	stream, err := devices[0].NewStream("step")
	must(t, err)
	t.Cleanup(func() {
		workers.Close()
		must(t, stream.Close())
		must(t, mover.Close())
		pinned.Close()
		must(t, driver.Close())
		cudatest.Check(t)
	})
	port := []config.Port{{Name: "X", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	out := []config.Port{{Name: "Y", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	runner := batch.NewRunner(batch.Settings{
		Signature: &config.Signature{Model: "m", Version: 1, MaxBatch: 8, Inputs: port, Outputs: out},
		Stats:     &telemetry.Model{Name: "m"}, Alloc: host, Log: slog.New(slog.DiscardHandler), Mover: mover,
	})
	sink := &spills{}
	tracer, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{sink}, All: true})
	must(t, err)
	turn, inst := scheduler.NewRunLoop(workers), &scratchModel{deviceModel{stream: stream}}
	run := func(floats int64) []string {
		sink.list = nil
		var list scheduler.TaskList
		var traces []*tracing.Trace
		for i := range 3 {
			in, err := tensor.New(host, tensor.FP32, tensor.Of(1, floats))
			must(t, err)
			clear(in.Bytes())
			w := &scheduler.Task{
				TaskRequest: scheduler.TaskRequest{Rows: 1, Step: 4, Meta: &infer.Meta{}, Ctx: context.Background(), In: []tensor.Tensor{in}},
				TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
			}
			if i < 2 {
				x := tracer.Sample("m", 1, fmt.Sprintf("r%d", i))
				w.Traced = &scheduler.TaskTrace{Trace: x}
				traces = append(traces, x)
			}
			list.Push(w)
		}
		runner.Run(inst, &list, turn)
		for w := list.Pop(); w != nil; w = list.Pop() {
			must(t, w.Err)
			tensor.ReleaseAll(w.Out)
		}
		for _, x := range traces {
			x.End()
		}
		return sink.list
	}
	var want []string
	for _, r := range []string{"r0", "r1"} {
		for _, what := range []string{"'X' 48", "'Y' 48", "'' 100"} {
			want = append(want, r+": step 4 tensor "+what+" device:0 to pinned")
		}
	}
	if got := run(4); !slices.Equal(got, want) {
		t.Errorf("spills\n%q, want\n%q", got, want)
	}
	devices[0].SpillTo(pinned, 1<<20)
	if got := run(4); len(got) > 0 {
		t.Errorf("with room for all: spills %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
