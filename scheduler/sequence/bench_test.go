package sequence_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/schedtest"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// rounds returns a function that runs one sequence of three requests in each of the slots, at the same time. It
// checks that the pool's memory is released at the end.
func rounds(tb testing.TB, strategy string, slots int) func() {
	tb.Helper()
	text := text(strategy, "")
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.MaxBatchSize = int32(slots)
	full, public := ports(tb, slots, text)
	b, pool := schedtest.NewBench(tb, public, nil), tensor.NewPool()
	rules := sequence.RulesOf(cfg)
	s, err := sequence.New(sequence.Settings{
		Config: cfg, Signature: full, Public: public, Rules: rules,
		Policy: dynamic.Rules{MaxBatch: int32(slots), MaxElements: math.MaxInt64}.Policy(),
		Runner: batch.NewRunner(batch.Settings{
			Signature: full, Stats: b.Stats, Alloc: pool, Log: slog.New(slog.DiscardHandler), NoRetry: true,
		}),
		Stats: b.Stats, Alloc: pool, Instances: []backends.Instance{schedtest.Model(add)}, Workers: b.Workers, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(s.Drain(tb.Context()), s.Close()); err != nil || pool.InUse() != 0 {
			tb.Errorf("%v, %d bytes are left", err, pool.InUse())
		}
	})
	r := &round{tb: tb, pool: pool, s: s, turn: scheduler.NewRunLoop(b.Workers)}
	r.done = func() bool { return r.left == 0 }
	for i := range slots {
		r.metas = append(r.metas, infer.Meta{Sequence: infer.Sequence{ID: uint64(i + 1)}})
		r.works = append(r.works, scheduler.Task{
			TaskRequest: scheduler.TaskRequest{To: r, Rows: 1, In: make([]tensor.Tensor, 1), Ctx: tb.Context()},
			TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
		})
	}
	return r.run
}

// add is a model that adds up its inputs.
func add(b *backends.Batch) error {
	in, sum := tensor.Slice[int32](&b.In[1]), tensor.Slice[int32](&b.In[2])
	for port := range b.Out {
		o, err := b.Alloc(port, tensor.Int32, b.In[1].Shape)
		if err != nil {
			return err
		}
		out := tensor.Slice[int32](o)
		for i := range out {
			out[i] = sum[i] + in[i]
		}
	}
	return nil
}

type round struct {
	tb    testing.TB
	pool  *tensor.Pool
	s     *sequence.Scheduler
	turn  *scheduler.RunLoop
	metas []infer.Meta
	works []scheduler.Task
	done  func() bool
	left  int
	sum   int32
}

// Complete adds up the responses.
func (r *round) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		if w.Err != nil {
			r.tb.Error(w.Err)
		} else {
			r.sum += tensor.Slice[int32](&w.Out[0])[0]
		}
		tensor.ReleaseAll(w.Out)
		r.left--
	}
}

func (r *round) run() {
	r.sum = 0
	for k := range 3 {
		r.left = len(r.works)
		for i := range r.works {
			w := &r.works[i]
			r.metas[i].Sequence.Start, r.metas[i].Sequence.End = k == 0, k == 2
			in, err := tensor.New(r.pool, tensor.Int32, tensor.Of(1, 1))
			if err != nil {
				r.tb.Fatal(err)
			}
			tensor.Slice[int32](&in)[0] = 1
			w.Meta, w.In[0] = &r.metas[i], in
			r.turn.Stage(r.s, w)
		}
		r.turn.Tick(0)
		r.turn.Dispatch()
		r.turn.RunUntil(r.done)
	}
	if want := int32(6 * len(r.works)); r.sum != want {
		r.tb.Fatalf("the sums add up to %d, want %d", r.sum, want)
	}
}

// BenchmarkSequences measures the cost of a sequence's request outside the model.
func BenchmarkSequences(b *testing.B) {
	for name, tc := range map[string]struct {
		strategy string
		slots    int
	}{"direct 1": {"direct {}", 1}, "direct 32": {"direct {}", 32}, "oldest 32": {"oldest {}", 32}} {
		b.Run(name, func(b *testing.B) {
			run := rounds(b, tc.strategy, tc.slots)
			b.ReportAllocs()
			for range b.N {
				run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*3*tc.slots), "ns/request")
		})
	}
}
