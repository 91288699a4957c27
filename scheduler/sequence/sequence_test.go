package sequence_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/schedtest"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build returns a scheduler with the rules of a configuration, for tasks of public's ports.
func build(b *schedtest.Bench, text string, full, public *config.Signature, alloc tensor.Allocator, instances []backends.Instance) (*sequence.Scheduler, error) {
	return buildLimited(b, text, full, public, alloc, instances, nil)
}

func buildLimited(
	b *schedtest.Bench, text string, full, public *config.Signature, alloc tensor.Allocator, instances []backends.Instance, limiters []scheduler.Limiter,
) (*sequence.Scheduler, error) {
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		return nil, err
	}
	cfg.MaxBatchSize = int32(full.MaxBatch)
	rules := sequence.RulesOf(cfg)
	return sequence.New(sequence.Settings{
		Config: cfg, Signature: full, Public: public, Rules: rules,
		Policy: dynamic.Rules{MaxBatch: int32(max(full.MaxBatch, 1)), MaxElements: math.MaxInt64}.Policy(),
		Runner: batch.NewRunner(batch.Settings{
			Signature: full, Stats: b.Stats, Alloc: b.Alloc, Log: slog.New(slog.DiscardHandler), NoRetry: true, Iterative: rules.Iterative,
		}),
		Stats: b.Stats, Alloc: alloc, Instances: instances, Limiters: limiters, Workers: b.Workers,
		ReadFile: func(name string) ([]byte, error) {
			if name == "seven" {
				return []byte{7, 0, 0, 0}, nil
			}
			return nil, errors.New("no such file")
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// TestContract checks the contract of schedulers with requests that are sequences of one request.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"direct": `sequence_batching { direct {} iterative_sequence: true }`,
		"oldest": `sequence_batching { oldest {} iterative_sequence: true }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schedtest.RunRows(t, func(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
				s, err := build(b, text, b.Sig, b.Sig, tensor.NewPool(), instances)
				if err != nil {
					t.Error(err)
				}
				return s
			}, 1)
		})
	}
}

// signals configures the control inputs of the tests' models; %s is a strategy.
const signals = `sequence_batching {
  STRATEGY
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [ 1 ] INITIAL }
}`

func text(strategy, initial string) string {
	return strings.NewReplacer("STRATEGY", strategy, "INITIAL", initial).Replace(signals)
}

// ports returns the signature of a model that adds IN up, and its public signature.
func ports(tb testing.TB, maxBatch int, cfg string) (full, public *config.Signature) {
	tb.Helper()
	p := func(name string, d tensor.DType) config.Port {
		return config.Port{Name: name, DType: d, Dims: tensor.Of(1)}
	}
	full = &config.Signature{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: []config.Port{
		p("READY", tensor.Bool), p("IN", tensor.Int32), p("SUM_IN", tensor.Int32), p("START", tensor.Int32), p("END", tensor.FP32), p("CORRID", tensor.Uint64),
	}, Outputs: []config.Port{p("SUM_OUT", tensor.Int32), p("OUT", tensor.Int32)}}
	c := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(cfg), c); err != nil {
		tb.Fatal(err)
	}
	public, err := config.HideSequence(c, full)
	if err != nil {
		tb.Fatal(err)
	}
	if len(public.Inputs) != 1 || len(public.Outputs) != 1 {
		tb.Fatalf("requests see %v and %v", public.Inputs, public.Outputs)
	}
	return full, public
}

// adder adds IN to the state, and writes the new state to two outputs. It fails on -1.
type adder struct {
	mu    sync.Mutex
	order map[uint64][]int32 // inputs of each sequence, as executed; guarded by mu
	wrong []string           // guarded by mu
}

func (a *adder) model(b *backends.Batch) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready, in, sum := b.In[0].Bytes(), tensor.Slice[int32](&b.In[1]), tensor.Slice[int32](&b.In[2])
	start, ids := tensor.Slice[int32](&b.In[3]), tensor.Slice[uint64](&b.In[5])
	var out [2][]int32
	for port := range out {
		o, err := b.Alloc(port, tensor.Int32, b.In[1].Shape)
		if err != nil {
			return err
		}
		out[port] = tensor.Slice[int32](o)
	}
	for row := range in {
		out[0][row] = sum[row] + in[row]
		out[1][row] = out[0][row]
		if ready[row] == 0 {
			if in[row] != 0 || sum[row] != 0 || ids[row] != 0 || start[row] != 0 {
				a.wrong = append(a.wrong, "a row for nobody holds something")
			}
			continue
		}
		if in[row] == -1 {
			b.Fail(row, status.Errorf(status.InvalidArg, "minus one"))
		}
		if m := b.Requests[row].Meta; m.Sequence.ID != ids[row] || m.Sequence.Start != (start[row] == 1) {
			a.wrong = append(a.wrong, "controls are another request's")
		}
		a.order[ids[row]] = append(a.order[ids[row]], in[row])
	}
	return nil
}

// bench returns the scheduler of an adder.
func bench(t *testing.T, cfg string, maxBatch, instances int) (*schedtest.Bench, *sequence.Scheduler, *adder) {
	t.Helper()
	return benchLimited(t, cfg, maxBatch, make([]scheduler.Limiter, instances))
}

// benchLimited is bench with as many instances as limiters.
func benchLimited(t *testing.T, cfg string, maxBatch int, limiters []scheduler.Limiter) (*schedtest.Bench, *sequence.Scheduler, *adder) {
	t.Helper()
	full, public := ports(t, maxBatch, cfg)
	b := schedtest.NewBench(t, public, nil)
	a := &adder{order: map[uint64][]int32{}}
	var list []backends.Instance
	for range limiters {
		list = append(list, schedtest.Model(a.model))
	}
	s, err := buildLimited(b, cfg, full, public, b.Alloc, list, limiters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Drain(context.Background()), s.Close()); err != nil {
			t.Error(err)
		}
		if n := b.Stats.Pending(); n != 0 || len(a.wrong) > 0 {
			t.Errorf("pending gauge is %d, faults %v", n, a.wrong)
		}
	})
	return b, s, a
}

// number returns a request with one number.
func number(t *testing.T, b *schedtest.Bench, seq infer.Sequence, v int32) *schedtest.Job {
	t.Helper()
	x, err := tensor.New(b.Alloc, tensor.Int32, tensor.Of([]int64{1, 1}[:min(b.Sig.MaxBatch, 1)+1]...))
	if err != nil {
		t.Fatal(err)
	}
	tensor.Slice[int32](&x)[0] = v
	j := b.Job(1, x)
	j.Meta.Sequence = seq
	return j
}

func sum(t *testing.T, j *schedtest.Job, want int32) {
	t.Helper()
	if j.Err != nil {
		t.Errorf("unexpected error %v, want %d", j.Err, want)
		return
	}
	if got := tensor.Slice[int32](&j.Out[0])[0]; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	j.Release()
}

// TestSums checks the sums of interleaved sequences, more than there are slots, whose requests arrive at once, with
// every strategy.
func TestSums(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy            string
		maxBatch, instances int
	}{
		"direct": {"direct {}", 4, 1}, "direct, two instances": {"direct {}", 3, 2}, "no batches": {"", 0, 2},
		"oldest": {"oldest { max_candidate_sequences: 6 }", 4, 1}, "oldest, two instances": {"oldest { preserve_ordering: true }", 4, 2},
		"delay": {"direct { minimum_slot_utilization: 1 max_queue_delay_microseconds: 500 }", 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s, _ := bench(t, text(tc.strategy, ""), tc.maxBatch, tc.instances)
			const sequences, each = 30, 7
			var jobs []*schedtest.Job
			for k := range each {
				for id := range sequences {
					jobs = append(jobs, number(t, b, infer.Sequence{ID: uint64(id + 1), Start: k == 0, End: k == each-1}, int32(id+k)))
				}
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for i, j := range jobs {
				id, k := int32(i%sequences), int32(i/sequences)
				sum(t, j, (k+1)*id+k*(k+1)/2)
			}
			if n := b.Stats.Requests().Count; n != sequences*each {
				t.Errorf("counted %d requests", n)
			}
		})
	}
}

// TestStates checks the initial state and the state after a request that failed.
func TestStates(t *testing.T) {
	t.Parallel()
	seven := `initial_state { name: "x" data_type: TYPE_INT32 dims: [ 1 ] data_file: "seven" }`
	b, s, _ := bench(t, text("direct {}", seven), 2, 1)
	ask := func(seq infer.Sequence, v int32) *schedtest.Job {
		j := number(t, b, seq, v)
		b.Submit(s, j)
		schedtest.Wait(j)
		return j
	}
	id := infer.Sequence{ID: 5}
	begin, end := infer.Sequence{ID: 5, Start: true}, infer.Sequence{ID: 5, End: true}
	sum(t, ask(begin, 1), 8)
	if j := ask(id, -1); status.CodeOf(j.Err) != status.InvalidArg {
		t.Errorf("error %v", j.Err)
	}
	sum(t, ask(id, 2), 10)
	sum(t, ask(begin, 3), 10) // a conflict: it begins anew
	sum(t, ask(end, 1), 11)
	if j := ask(id, 1); status.CodeOf(j.Err) != status.InvalidArg {
		t.Errorf("error %v", j.Err)
	}
	sum(t, ask(begin, 2), 9)
}

// TestRefused checks the requests that the scheduler rejects.
func TestRefused(t *testing.T) {
	t.Parallel()
	b, s, _ := bench(t, text("direct {}", ""), 2, 1)
	for want, j := range map[string]*schedtest.Job{
		"inference request to model 'm' must specify a non-zero or non-empty correlation ID":                                                                  number(t, b, infer.Sequence{Start: true}, 1),
		"inference request to model 'm' has a correlation ID of 129 bytes, expected at most 128":                                                              number(t, b, infer.Sequence{Name: strings.Repeat("x", 129), Start: true}, 1),
		"inference request for sequence 9 to model 'm' must specify the START flag on the first request of the sequence":                                      number(t, b, infer.Sequence{ID: 9}, 1),
		"inference request to model 'm' has correlation ID 'x', expected a number up to 18446744073709551615: control CONTROL_SEQUENCE_CORRID is TYPE_UINT64": number(t, b, infer.Sequence{Name: "x", Start: true}, 1),
	} {
		b.Submit(s, j)
		schedtest.Wait(j)
		if j.Err == nil || j.Err.Error() != want || status.CodeOf(j.Err) != status.InvalidArg {
			t.Errorf("error %v, want %s", j.Err, want)
		}
	}
}

// TestBadStates checks that invalid initial states fail the load.
func TestBadStates(t *testing.T) {
	t.Parallel()
	for want, initial := range map[string]string{
		"failed to open text file for read other: no such file":                                    `initial_state { name: "x" data_type: TYPE_INT32 dims: [ 1 ] data_file: "other" }`,
		"initial_state setting expects 8 bytes, but the data provided from sevenonly has 4 bytes.": `initial_state { name: "x" data_type: TYPE_INT32 dims: [ 2 ] data_file: "seven" }`,
		"initial state of state input 'SUM_IN' of model 'm' has shape [2], expected [1]":           `initial_state { name: "x" data_type: TYPE_INT32 dims: [ 2 ] zero_data: true }`,
	} {
		cfg := text("", initial)
		full, public := ports(t, 0, cfg)
		b := schedtest.NewBench(t, public, nil)
		if _, err := build(b, cfg, full, public, b.Alloc, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestManySequences checks sums and order of ten thousand sequences at once (in short mode a thousand), of which
// every third never ends, from several goroutines.
func TestManySequences(t *testing.T) {
	t.Parallel()
	cfg := strings.Replace(text("oldest { max_candidate_sequences: 500 }", ""), "oldest", "max_sequence_idle_microseconds: 2000 oldest", 1)
	b, s, a := bench(t, cfg, 32, 2)
	const clients, length = 10, 3
	each := 1000
	if testing.Short() {
		each = 100
	}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			var jobs []*schedtest.Job
			for k := range each * length {
				id := uint64(c*each + k%each + 1)
				j := number(t, b, infer.Sequence{ID: id, Start: k < each, End: k >= (length-1)*each && id%3 > 0}, int32(k/each+1))
				jobs = append(jobs, j)
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for k, j := range jobs {
				n := int32(k/each + 1)
				sum(t, j, n*(n+1)/2)
			}
		})
	}
	wg.Wait()
	for id, sent := range a.order {
		if len(sent) != length || sent[0] != 1 || sent[1] != 2 || sent[2] != 3 {
			t.Fatalf("sequence %d ran as %v", id, sent)
		}
	}
}

// TestReschedule checks a request that the model executes three times, with a state that counts.
func TestReschedule(t *testing.T) {
	t.Parallel()
	cfg := strings.Replace(text("oldest {}", ""), "oldest", "iterative_sequence: true oldest", 1)
	full, public := ports(t, 2, cfg)
	b := schedtest.NewBench(t, public, nil)
	a := &adder{order: map[uint64][]int32{}}
	s, err := build(b, cfg, full, public, b.Alloc, []backends.Instance{schedtest.Model(func(batch *backends.Batch) error {
		if err := a.model(batch); err != nil {
			return err
		}
		for i, total := range tensor.Slice[int32](&batch.Out[0]) {
			if total < 3*tensor.Slice[int32](&batch.In[1])[i] {
				batch.Reschedule(i)
			}
		}
		return nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	var jobs []*schedtest.Job
	for i := range 9 {
		jobs = append(jobs, number(t, b, infer.Sequence{}, int32(i+1)))
	}
	b.Submit(s, jobs...)
	schedtest.Wait(jobs...)
	for i, j := range jobs {
		sum(t, j, int32(3*(i+1)))
	}
	if n := b.Stats.Requests().Count; n != 9 || len(a.wrong) > 0 {
		t.Errorf("counted %d requests, faults %v", n, a.wrong)
	}
	if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil {
		t.Error(err)
	}
}
