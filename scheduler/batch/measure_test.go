//go:build cgo

package batch_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
)

// deviceTimes has the times of the newest batch in traces.
type deviceTimes struct{ last telemetry.Times }

func (s *deviceTimes) Batch(b *tracing.Batch) { s.last = b.Device }

func (*deviceTimes) Trace(*tracing.Trace) {}

// TestBatchHasTheTimeOfItsDevice executes batches of one and of three requests at a device that takes 2 ms for each operation: the input's
// copy and the model's. The host is done much earlier; statistics and traces have the device's time, and
// statistics count the batch once.
func TestBatchHasTheTimeOfItsDevice(t *testing.T) { //nolint:paralleltest // changes the driver
	cudatest.Require(t)
	s := newEdges(t, nil, false)
	cudatest.Set(t, "work_us", 2000)
	defer cudatest.Set(t, "work_us", 0)
	host, stats, sink := tensor.NewPool(), s.runner.Stats(), &deviceTimes{}
	tracer, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{sink}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]struct{ requests, batches uint64 }{1: {1, 1}, 3: {3, 1}} {
		requests, batches, rows := stats.Requests(), stats.Executions(), stats.Rows()
		var list scheduler.TaskList
		for range n {
			in, err := tensor.New(host, tensor.FP32, tensor.Of(1, 4))
			if err != nil {
				t.Fatal(err)
			}
			clear(in.Bytes())
			w := &scheduler.Task{
				TaskRequest: scheduler.TaskRequest{Rows: 1, Meta: &infer.Meta{}, Ctx: context.Background(), In: []tensor.Tensor{in}},
				TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
			}
			s.runner.Measure(w)
			w.Traced = &scheduler.TaskTrace{Trace: tracer.Sample("m", 1, "")}
			list.Push(w)
		}
		before := telemetry.Now()
		s.runner.Run(s.steps[0], &list, s.turn)
		for w := list.Head; w != nil; w = w.Next() {
			if w.Err != nil || !w.Measured.Any() {
				t.Errorf("%d requests: %v, measured %v", n, w.Err, w.Measured.Any())
			}
		}
		if err := s.steps[0].(*deviceModel).stream.Record().Wait(); err != nil {
			t.Fatal(err)
		}
		// The end of the measurement is behind the last operation, and so may be reached a little later.
		for stats.Executions() == batches {
			continue
		}
		after := stats.Requests()
		if after.Count-requests.Count != want.requests || stats.Executions()-batches != want.batches || stats.Rows()-rows != uint64(n) {
			t.Errorf("%d requests: %+v after %+v", n, after, requests)
		}
		if input, infer := after.InputNs-requests.InputNs, after.InferNs-requests.InferNs; input < 2e6*want.requests || infer < 2e6*want.requests {
			t.Errorf("%d requests: %d ns for inputs and %d ns in the model", n, input, infer)
		}
		for w := list.Pop(); w != nil; w = list.Pop() {
			tensor.ReleaseAll(w.Out)
			w.Traced.Trace.End() // waits for the device's times
		}
		if d := sink.last; d.Start < before || d.InputEnd-d.Start < 2e6 || d.InferEnd-d.InputEnd < 2e6 || d.End < d.InferEnd || d.End > telemetry.Now()+1e6 {
			t.Errorf("%d requests: the device's times in traces are %+v, after %d", n, d, before)
		}
	}
}
