package batch_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// model is an instance: a function of a batch that records the sizes of its batches.
type model struct {
	run   func(b *backends.Batch) error
	sizes []int
}

func (m *model) Execute(_ context.Context, b *backends.Batch) error {
	m.sizes = append(m.sizes, len(b.Requests))
	return m.run(b)
}

func (*model) Close() error { return nil }

// whole is a policy that takes all tasks of the oldest one's shape.
type whole struct{ seen []scheduler.Executed }

func (*whole) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items {
		if v.Items[i].Shape == v.Items[0].Shape {
			scratch = append(scratch, int32(i))
		}
	}
	return scheduler.Decision{Take: scratch}
}

// Observe records the executions.
func (p *whole) Observe(x scheduler.Executed) { p.seen = append(p.seen, x) }

// responses records the completed tasks.
type responses struct{ tasks []*scheduler.Task }

func (a *responses) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		a.tasks = append(a.tasks, w)
	}
}

var errBad = errors.New("a value the model cannot take")

// copyInput passes the first input on, and fails the batch for a negative value.
func copyInput(b *backends.Batch) error {
	for _, v := range tensor.Slice[int32](&b.In[0]) {
		if v < 0 {
			return errBad
		}
	}
	b.SetOutput(0, b.In[0].Retain())
	return nil
}

type desk struct {
	*queue.Queue
	model  *model
	stats  *telemetry.Model
	turn   *scheduler.RunLoop
	alloc  tensor.Allocator
	policy *whole
	done   responses
}

func newDesk(t *testing.T, m *model, params map[string]string, inputs ...string) *desk {
	t.Helper()
	sig := &config.Signature{Model: "m", Version: 1, MaxBatch: 64}
	for _, name := range inputs {
		sig.Inputs = append(sig.Inputs, config.Port{Name: name, DType: tensor.Int32, Dims: tensor.Of(-1)})
	}
	sig.Outputs = []config.Port{{Name: "OUT", DType: tensor.Int32, Dims: tensor.Of(-1)}}
	padding, err := batch.NewPadding(sig, params)
	if err != nil {
		t.Fatal(err)
	}
	workers := scheduler.NewWorkers()
	t.Cleanup(workers.Close)
	s := &desk{model: m, stats: &telemetry.Model{Name: "m"}, alloc: tensortest.NewChecked(t, nil), turn: scheduler.NewRunLoop(workers), policy: &whole{}}
	s.Queue = queue.New(queue.Settings{
		Runner: batch.NewRunner(batch.Settings{
			Signature: sig, Stats: s.stats, Alloc: s.alloc, Padding: padding, Log: slog.New(slog.DiscardHandler),
		}),
		Policy: s.policy, Instances: []backends.Instance{m}, Workers: workers,
	})
	return s
}

// task returns a request of one row with the given values by input.
func (s *desk) task(t *testing.T, node int32, inputs ...[]int32) *scheduler.Task {
	t.Helper()
	w := &scheduler.Task{
		TaskRequest: scheduler.TaskRequest{To: &s.done, Node: node, Rows: 1, Meta: &infer.Meta{}, Ctx: t.Context()},
		TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
	}
	for _, values := range inputs {
		in, err := tensor.New(s.alloc, tensor.Int32, tensor.Of(1, int64(len(values))))
		if err != nil {
			t.Fatal(err)
		}
		copy(tensor.Slice[int32](&in), values)
		w.In = append(w.In, in)
	}
	return w
}

// send enqueues the tasks together and returns the output of each, nil for a failure.
func (s *desk) send(tasks ...*scheduler.Task) [][]int32 {
	s.done.tasks = nil
	var list scheduler.TaskList
	for _, w := range tasks {
		list.Push(w)
	}
	got := make([][]int32, len(tasks))
	s.Enqueue(list, s.turn)
	s.turn.RunUntil(func() bool { return len(s.done.tasks) == len(tasks) })
	for _, w := range s.done.tasks {
		if w.Err == nil {
			got[w.Node] = append([]int32{}, tensor.Slice[int32](&w.Out[0])...)
			w.Out[0].Release()
		}
	}
	return got
}

// TestFailureIsOfOneRequest checks that a request which the model rejects does not fail the requests of its batch.
func TestFailureIsOfOneRequest(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(b *backends.Batch) error{
		"error": copyInput,
		"panic": func(b *backends.Batch) error {
			if err := copyInput(b); err != nil {
				panic(err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDesk(t, &model{run: run}, nil, "IN")
			got := s.send(s.task(t, 0, []int32{1, 2}), s.task(t, 1, []int32{-3, 4}), s.task(t, 2, []int32{5, 6}))
			if d := cmp.Diff([][]int32{{1, 2}, nil, {5, 6}}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff([]int{3, 1, 1, 1}, s.model.sizes); d != "" {
				t.Errorf("batches (-want +got):\n%s", d)
			}
			failed, _ := s.stats.Failures[telemetry.Backend].Load()
			if s.stats.Requests().Count != 2 || failed != 1 || s.stats.Pending() != 0 {
				t.Errorf("counted %d successes, %d failures and %d pending, want 2, 1 and 0", s.stats.Requests().Count, failed, s.stats.Pending())
			}
		})
	}
}

// TestPaddingKeepsRelations checks that padding evens out the lengths of different requests, not those within one:
// the model rejects the same requests alone and in a batch.
func TestPaddingKeepsRelations(t *testing.T) {
	t.Parallel()
	s := newDesk(t, &model{run: func(b *backends.Batch) error {
		if b.In[0].Shape.Dim(1) != b.In[1].Shape.Dim(1) || b.In[0].Shape.Dim(1) == 0 {
			return errBad
		}
		return copyInput(b)
	}}, map[string]string{"pad.IDS": "0", "pad.MASK": "0", "unpad.OUT": "IDS"}, "IDS", "MASK")
	got := s.send(
		s.task(t, 0, []int32{1, 2, 3}, []int32{1, 1, 1}),
		s.task(t, 1, []int32{1, 2, 3}, []int32{1}),
		s.task(t, 2, []int32{1}, []int32{1, 1, 1}),
		s.task(t, 3, []int32{}, []int32{}),
		s.task(t, 4, []int32{4}, []int32{1}),
	)
	if d := cmp.Diff([][]int32{{1, 2, 3}, nil, nil, nil, {4}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if s.model.sizes[0] != 2 {
		t.Errorf("the first batch had %d tasks, want the 2 well-formed ones", s.model.sizes[0])
	}
}

// TestCancelledInTheModel checks that a request which the model abandons because its client disconnected counts as
// cancelled.
func TestCancelledInTheModel(t *testing.T) {
	t.Parallel()
	s := newDesk(t, &model{run: func(*backends.Batch) error { return context.Canceled }}, nil, "IN")
	s.send(s.task(t, 0, []int32{1}))
	if n, _ := s.stats.Failures[telemetry.Canceled].Load(); n != 1 {
		t.Errorf("counted %d cancelled requests, want 1", n)
	}
}

// TestFailuresTeachNothing checks that policies do not observe failed executions, which may have ended early.
func TestFailuresTeachNothing(t *testing.T) {
	t.Parallel()
	s := newDesk(t, &model{run: copyInput}, nil, "IN")
	s.send(s.task(t, 0, []int32{-1}))
	s.send(s.task(t, 0, []int32{-1}), s.task(t, 1, []int32{2}))
	if len(s.policy.seen) != 0 {
		t.Errorf("learned from failures: %v", s.policy.seen)
	}
	s.send(s.task(t, 0, []int32{1}))
	if len(s.policy.seen) != 1 {
		t.Errorf("learned from %d executions, want 1", len(s.policy.seen))
	}
}
