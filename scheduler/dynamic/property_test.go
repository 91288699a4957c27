package dynamic_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// setup is a random model with random batching rules.
type setup struct {
	rules     dynamic.Rules
	instances int
	params    map[string]string
	failing   bool
}

const width = 4 // the largest extent of a fixed dimension

func newSetup(rng *rand.Rand) setup {
	s := setup{rules: dynamic.Rules{MaxBatch: int32(1 + rng.IntN(8)), MaxElements: 1 << 40}, instances: 1 + rng.IntN(3), failing: rng.IntN(3) == 0}
	for p := int32(1); p <= s.rules.MaxBatch; p++ {
		if rng.IntN(4) == 0 {
			s.rules.Preferred = append(s.rules.Preferred, p)
		}
	}
	if rng.IntN(2) == 0 {
		s.rules.Delay = time.Duration(rng.IntN(200)) * time.Microsecond
	}
	s.rules.Ordered = rng.IntN(3) == 0
	if rng.IntN(2) == 0 {
		s.rules.Levels = levels(rng, s.rules.Ordered)
	}
	if rng.IntN(2) == 0 {
		s.rules.Padded = true
		s.params = map[string]string{"pad.TOKENS": "-1", "pad.MASK": "0", "unpad.TOKENS": "TOKENS", "unpad.MASK": "MASK"}
		if rng.IntN(3) == 0 {
			s.rules.MaxElements = int64(1 + rng.IntN(40))
		}
	}
	return s
}

// levels returns random priority levels, some of which reject requests.
func levels(rng *rand.Rand, ordered bool) queue.Levels {
	l := queue.Levels{Count: 1 + rng.Uint64N(3), Default: 1, Policies: map[uint64]queue.Policy{}}
	if ordered {
		l.Count = 1
	}
	for i := range l.Count {
		l.Policies[i+1] = queue.Policy{
			MaxSize: rng.IntN(3) * 3, Timeout: time.Duration(rng.IntN(2)*rng.IntN(3000)) * time.Microsecond,
			Override: rng.IntN(2) == 0, Delay: !ordered && rng.IntN(2) == 0,
		}
	}
	return l
}

// signature returns the signature of a model that returns its inputs: two of variable length, an optional one of
// any shape, and strings.
func signature(maxBatch int32) *config.Signature {
	s := &config.Signature{Model: "m", MaxBatch: int(maxBatch), Inputs: []config.Port{
		{Name: "TOKENS", DType: tensor.Int64, Dims: tensor.Of(-1)},
		{Name: "MASK", DType: tensor.FP32, Dims: tensor.Of(-1)},
		{Name: "EXTRA", DType: tensor.FP32, Dims: tensor.Of(-1, -1), Optional: true},
		{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)},
	}}
	s.Outputs = slices.Clone(s.Inputs)
	return s
}

// order is one request and its expected response.
type order struct {
	job    *schedtest.Job
	in     []tensor.Tensor
	fails  bool
	cancel bool
	// refuses reports that a queue may reject it for its size or its timeout.
	refuses bool
}

func newOrder(rng *rand.Rand, b *schedtest.Bench, s *setup, id int64) *order {
	rows, length, mask := int64(1+rng.IntN(int(s.rules.MaxBatch))), int64(rng.IntN(9)), int64(rng.IntN(9))
	tokens := make([]int64, rows*length)
	for i := range tokens {
		tokens[i] = id*1000 + int64(i)
	}
	weights := make([]float32, rows*mask)
	for i := range weights {
		weights[i] = float32(id) + float32(i)/1000
	}
	texts := make([]string, rows)
	for i := range texts {
		texts[i] = fmt.Sprint(id, "/", i)[:1+rng.IntN(3)]
	}
	o := &order{fails: s.failing && rng.IntN(5) == 0, cancel: rng.IntN(10) == 0}
	if o.fails {
		texts[rng.IntN(len(texts))] = "bad"
	}
	o.in = []tensor.Tensor{b.Ints([]int64{rows, length}, tokens...), b.Floats([]int64{rows, mask}, weights...), {}, b.Strings([]int64{rows, 1}, texts...)}
	if rng.IntN(3) == 0 {
		x, y := int64(1+rng.IntN(width)), int64(1+rng.IntN(width))
		extra := make([]float32, rows*x*y)
		for i := range extra {
			extra[i] = float32(id) - float32(i)/1000
		}
		o.in[2] = b.Floats([]int64{rows, x, y}, extra...)
	}
	mine := make([]tensor.Tensor, len(o.in))
	for i := range o.in {
		mine[i] = o.in[i].Retain()
	}
	o.job = b.Job(int(rows), mine...)
	o.job.Meta.Priority, o.job.Meta.Timeout = rng.Uint64N(5), rng.Uint64N(3000)
	o.refuses = !s.rules.Levels.Free()
	return o
}

// model returns the inputs, fails the rows whose text is "bad" and checks that the batch keeps the rules.
func (s *setup) model(t *testing.T) schedtest.Model {
	t.Helper()
	return func(b *backends.Batch) error {
		if b.Rows > int(s.rules.MaxBatch) {
			t.Errorf("a batch of %d rows, at most %d are allowed", b.Rows, s.rules.MaxBatch)
		}
		longest := max(b.In[0].Shape.Dim(1), b.In[1].Shape.Dim(1))
		if len(b.Requests) > 1 && int64(b.Rows)*longest > s.rules.MaxElements {
			t.Errorf("a batch of %d rows of %d, at most %d elements are allowed", b.Rows, longest, s.rules.MaxElements)
		}
		rest := b.In[3].Bytes()
		for row := range b.Rows {
			var elem []byte
			if elem, rest, _ = tensor.NextBytes(rest); string(elem) == "bad" {
				b.Fail(row, status.Errorf(status.InvalidArg, "bad"))
			}
		}
		return schedtest.Copy(b)
	}
}

// check fails the test unless the request received its own tensors, or its own error.
func (o *order) check(t *testing.T) {
	t.Helper()
	j := o.job
	switch code := status.CodeOf(j.Err); {
	case j.Times.Load() != 1:
		t.Errorf("completed %d times", j.Times.Load())
	case j.Err != nil && o.cancel && code == status.Cancelled:
	case j.Err != nil && o.refuses && code == status.Unavailable:
	case j.Err != nil && o.fails && code == status.InvalidArg:
	case j.Err != nil:
		t.Errorf("unexpected error %v", j.Err)
	case o.fails:
		t.Error("a bad row is not reported")
	default:
		for i := range o.in {
			want, got := &o.in[i], &j.Out[i]
			if want.Present() != got.Present() {
				t.Errorf("output %d present: %v, want %v", i, got.Present(), want.Present())
			} else if want.Present() && (!got.Shape.Equal(want.Shape) || !slices.Equal(got.Bytes(), want.Bytes())) {
				t.Errorf("output %d is %s % x, want %s % x", i, got.Shape, got.Bytes(), want.Shape, want.Bytes())
			}
		}
	}
	j.Release()
	for i := range o.in {
		o.in[i].Release()
	}
}

// inOrder fails the test if responses that must leave in order of arrival did not. Requests that were rejected at
// once do not count.
func inOrder(t *testing.T, b *schedtest.Bench, s *setup, jobs []*schedtest.Job) {
	t.Helper()
	if !s.rules.Ordered {
		return
	}
	var left []int
	for _, batch := range b.Batches() {
		for _, j := range batch {
			if i := slices.Index(jobs, j); i >= 0 && status.CodeOf(j.Err) != status.Unavailable {
				left = append(left, i)
			}
		}
	}
	if !slices.IsSorted(left) {
		t.Errorf("answers left in order %v", left)
	}
}

// TestRandomBatches checks that each request receives its own rows, whichever requests share its batch, with random
// requests and rules.
func TestRandomBatches(t *testing.T) {
	t.Parallel()
	seeds, each := uint64(80), 40
	if testing.Short() {
		seeds, each = 25, 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test wants the same numbers again
			s := newSetup(rng)
			b := schedtest.NewBench(t, signature(s.rules.MaxBatch), s.params)
			sched := maker(s.rules)(b, slices.Repeat([]backends.Instance{s.model(t)}, s.instances))
			var wg sync.WaitGroup
			for client := range 4 {
				rng := rand.New(rand.NewPCG(seed, uint64(100+client))) //nolint:gosec // likewise
				wg.Go(func() {
					for range each {
						orders := make([]*order, 1+rng.IntN(4))
						jobs := make([]*schedtest.Job, len(orders))
						ctx, cancel := context.WithCancel(t.Context())
						for i := range orders {
							orders[i] = newOrder(rng, b, &s, rng.Int64N(1000))
							if jobs[i] = orders[i].job; orders[i].cancel {
								jobs[i].For(ctx)
							}
						}
						if rng.IntN(2) == 0 {
							cancel()
						}
						b.Submit(sched, jobs...)
						cancel()
						schedtest.Wait(jobs...)
						inOrder(t, b, &s, jobs)
						for _, o := range orders {
							o.check(t)
						}
					}
				})
			}
			wg.Wait()
			if err := sched.Drain(t.Context()); err != nil || b.Stats.Pending() != 0 {
				t.Errorf("drained with %v, %d pending", err, b.Stats.Pending())
			}
		})
	}
}

// TestOrderIsKept checks that tasks of one shape are executed in order of arrival, with any rules about sizes.
func TestOrderIsKept(t *testing.T) {
	t.Parallel()
	seeds := uint64(100)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 8)) //nolint:gosec // a test wants the same numbers again
		s := newSetup(rng)
		s.rules.Padded, s.rules.Levels = false, queue.Levels{}
		b := schedtest.NewBench(t, schedtest.Signature(int(s.rules.MaxBatch)), nil)
		var seen []float32 // of one instance
		sched := maker(s.rules)(b, []backends.Instance{schedtest.Model(func(batch *backends.Batch) error {
			seen = append(seen, tensor.Slice[float32](&batch.In[0])...)
			return schedtest.Share(batch)
		})})
		var jobs []*schedtest.Job
		var want []float32
		for range 20 {
			rows := 1 + rng.IntN(int(s.rules.MaxBatch))
			first := len(want)
			for range rows {
				want = append(want, float32(len(want)))
			}
			jobs = append(jobs, b.Job(rows, b.Floats([]int64{int64(rows), 1}, want[first:]...)))
		}
		for at := 0; at < len(jobs); {
			n := min(1+rng.IntN(8), len(jobs)-at)
			b.Submit(sched, jobs[at:at+n]...)
			at += n
		}
		schedtest.Wait(jobs...)
		if !slices.Equal(seen, want) {
			t.Errorf("seed %d: rows executed in order %v", seed, seen)
		}
		for _, j := range jobs {
			j.Release()
		}
	}
}
