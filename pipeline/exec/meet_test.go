package exec_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// batches records the rows of each execution of a model, by the width of a row.
type batches struct {
	mu   sync.Mutex
	rows map[int][]int
}

// of records the executions of a model.
func (s *batches) of(e *branching, name string) {
	inner := e.batch[name]
	e.batch[name] = func(b *backends.Batch) error {
		s.mu.Lock()
		if s.rows == nil {
			s.rows = map[int][]int{}
		}
		width := b.In[0].Len / 4 / b.Rows
		s.rows[width] = append(s.rows[width], b.Rows)
		s.mu.Unlock()
		return inner(b)
	}
}

// taken returns what was recorded, and forgets it.
func (s *batches) taken() map[int][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.rows
	s.rows = nil
	for _, list := range rows {
		slices.Sort(list)
		slices.Reverse(list)
	}
	return rows
}

// reader is an ensemble like one that reads text: it cuts a number v into 16 items of widths 1 to 7, finds the direction of each in tensors of one shape,
// pads the items to width 4 or 8, one by one, and adds each up.
func reader(directions, reads int) *branching {
	e := newBranching(8)
	e.explode("cut", 8, func(float32) int { return 16 }, func(v float32) int { return 1 + int(v)%7 })
	e.addSplit("cut", "item", "n", "INPUT0", true)
	e.sum("shape", 8, -1)
	addStep(e.cfg, "shape", "small", "item")
	e.sum("direction", directions, 1)
	addStep(e.cfg, "direction", "turn", "small")
	fill := &config.Signature{
		Model: "fill", MaxBatch: 1, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1), port("INPUT1", tensor.FP32, 1)},
		Outputs: []config.Port{port("OUTPUT0", tensor.FP32, -1)},
	}
	e.custom(fill, func(b *backends.Batch) error {
		in := tensor.Slice[float32](&b.In[0])
		out, err := b.Alloc(0, tensor.FP32, tensor.Of(1, int64(4+4*(len(in)/5))))
		if err == nil {
			clear(out.Bytes())
			copy(tensor.Slice[float32](out), in)
		}
		return err
	})
	addStep(e.cfg, "fill", "padded", "item", "turn")
	e.sum("read", reads, -1)
	addStep(e.cfg, "read", "text", "padded")
	e.param("ensemble.gather", `{"out": "text"}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	for _, name := range []string{"direction", "read"} {
		m := e.models[name]
		m.Gathers = true
		e.models[name] = m
	}
	return e
}

// TestFanOutMeets checks that a picture of 16 crops executes the next model in as many batches as needed: the groups of a fan-out wait for each
// other at models that batch.
func TestFanOutMeets(t *testing.T) {
	t.Parallel()
	// Items v to v+15 have the widths 1 + v%7: of 0 to 15, 10 are at most 4 wide.
	for name, tc := range map[string]struct {
		directions, reads int
		direction, read   map[int][]int
	}{
		"one batch":    {64, 64, map[int][]int{1: {16}}, map[int][]int{4: {10}, 8: {6}}},
		"full batches": {8, 4, map[int][]int{1: {8, 8}}, map[int][]int{4: {4, 4, 2}, 8: {4, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newHostBench(t), reader(tc.directions, tc.reads)
			var directions, reads batches
			directions.of(e, "direction")
			reads.of(e, "read")
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				got := resultOf(t, submit(t.Context(), x, b.batched(0)))
				var want []float32
				for v := range 16 {
					want = append(want, float32(v*(1+v%7)))
				}
				if d := cmp.Diff(want, got.Out); d != "" {
					t.Fatalf("(-want +got):\n%s", d)
				}
				if d := cmp.Diff(tc.direction, directions.taken()); d != "" {
					t.Errorf("batches of 'direction', by width (-want +got):\n%s", d)
				}
				if d := cmp.Diff(tc.read, reads.taken()); d != "" {
					t.Errorf("batches of 'read', by width (-want +got):\n%s", d)
				}
			}
		})
	}
}

// TestFanOutMeetsSkipped checks that groups do not wait for those that a condition keeps from a node.
func TestFanOutMeetsSkipped(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), reader(64, 64)
	e.param("step.read.when", "turn[0] < 8.0")
	e.param("step.read.otherwise", `{"text": [-1]}`)
	var reads batches
	reads.of(e, "read")
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		got := resultOf(t, submit(t.Context(), x, b.batched(0)))
		for v, sum := range got.Out {
			want := float32(v * (1 + v%7))
			if want >= 8 {
				want = -1
			}
			if sum != want {
				t.Fatalf("item %d is %v, want %v", v, sum, want)
			}
		}
		if d := cmp.Diff(map[int][]int{4: {4}}, reads.taken()); d != "" {
			t.Errorf("batches of 'read', by width (-want +got):\n%s", d)
		}
	}
}

// TestFanOutMeetsFailed checks that a request ends, without leaks, when a group fails on its way to where others wait.
func TestFanOutMeetsFailed(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), reader(64, 64)
	fill := e.batch["fill"]
	e.batch["fill"] = func(b *backends.Batch) error {
		if tensor.Slice[float32](&b.In[0])[0] == 15 {
			return status.Errorf(status.Internal, "%w", errBroken)
		}
		return fill(b)
	}
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if a := submit(t.Context(), x, b.batched(0)); a.err == nil {
			t.Fatal("the request did not fail")
		}
		resultOf(t, submit(t.Context(), x, b.batched(100)))
	}
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFanOutMeetsRoom checks that groups which wait for room are not waited for.
func TestFanOutMeetsRoom(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), reader(64, 64)
	e.param("ensemble.max_items_in_flight", "3")
	var reads batches
	reads.of(e, "read")
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	got := resultOf(t, submit(t.Context(), x, b.batched(0)))
	if len(got.Out) != 16 {
		t.Errorf("%v", got)
	}
	for width, list := range reads.taken() {
		if slices.Max(list) > 3 {
			t.Errorf("batches of width %d have %v rows, want at most 3", width, list)
		}
	}
}

// TestFanOutMeetsAllocs checks that waiting allocates nothing in the steady state. It is not parallel: it counts the allocations of the process.
func TestFanOutMeetsAllocs(t *testing.T) {
	bn := budgetBench(t)
	e := fixed(true)
	same := &config.Signature{Model: "same", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", tensor.FP32, 1)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, 1)}}
	e.models["same"] = plan.Model{Signature: same, Gathers: true}
	e.batch["same"] = share
	addStep(e.cfg, "same", "met", "more")
	e.param("ensemble.gather", `{"out": "met"}`)
	x, err := e.executor(t, bn)
	if err != nil {
		t.Fatal(err)
	}
	if n := allocations(t, bn, x); n != 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
}
