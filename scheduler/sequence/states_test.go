package sequence_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

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

// remembering is a model with a state of any type: input IN, state S and output OUT.
type remembering struct {
	dtype    tensor.DType
	dims     []int64
	strategy string
	state    string // further settings of its state
	files    map[string][]byte
	model    schedtest.Model
	answers  bool // it is decoupled
	shown    bool // the state is a public output
}

const rememberingConfig = `sequence_batching {
  STRATEGY
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
  state { input_name: "S" output_name: "S2" data_type: TYPE dims: DIMS REST }
}`

// make returns the model's scheduler, which is closed at the end of the test.
func (m *remembering) make(t *testing.T, maxBatch int) (*schedtest.Bench, *sequence.Scheduler) {
	t.Helper()
	cfg := &modelconfig.ModelConfig{MaxBatchSize: int32(maxBatch)}
	text := strings.NewReplacer("STRATEGY", m.strategy, "TYPE dims", m.dtype.ConfigName()+" dims", "DIMS", strings.ReplaceAll(fmt.Sprint(m.dims), " ", ","), "REST", m.state).Replace(rememberingConfig)
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err, text)
	}
	cfg.MaxBatchSize = int32(maxBatch)
	if m.shown {
		cfg.Output = []*modelconfig.ModelOutput{{Name: "OUT"}, {Name: "S2"}}
	}
	p := func(name string, d tensor.DType, dims ...int64) config.Port {
		return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
	}
	full := &config.Signature{
		Model: "m", Version: 1, MaxBatch: maxBatch, Decoupled: m.answers,
		Inputs:  []config.Port{p("IN", m.dtype, 1), p("S", m.dtype, m.dims...), p("READY", tensor.Bool, 1)},
		Outputs: []config.Port{p("OUT", m.dtype, m.dims...), p("S2", m.dtype, m.dims...)},
	}
	public, err := config.HideSequence(cfg, full)
	if err != nil {
		t.Fatal(err)
	}
	b := schedtest.NewBench(t, public, nil)
	rules := sequence.RulesOf(cfg)
	s, err := sequence.New(sequence.Settings{
		Config: cfg, Signature: full, Public: public, Rules: rules,
		Policy: dynamic.Rules{MaxBatch: int32(max(maxBatch, 1)), MaxElements: math.MaxInt64}.Policy(),
		Runner: batch.NewRunner(batch.Settings{
			Signature: full, Stats: b.Stats, Alloc: b.Alloc, Log: slog.New(slog.DiscardHandler), NoRetry: true, Iterative: rules.Iterative,
			InPlace: sequence.InPlace(cfg, full),
		}),
		Stats: b.Stats, Alloc: b.Alloc, Instances: []backends.Instance{m.model}, Workers: b.Workers, Log: slog.New(slog.DiscardHandler),
		ReadFile: func(name string) ([]byte, error) {
			if data, ok := m.files[name]; ok {
				return data, nil
			}
			return nil, errors.New("no such file")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return b, s
}

// strs returns the elements of a BYTES tensor.
func strs(x *tensor.Tensor) (list []string) {
	for rest := x.Bytes(); len(rest) > 0; {
		var one []byte
		one, rest, _ = tensor.NextBytes(rest)
		list = append(list, string(one))
	}
	return list
}

// join is a model that appends its strings to those of the state.
func join(b *backends.Batch) error {
	in, old := strs(&b.In[0]), strs(&b.In[1])
	var data []byte
	for i := range in {
		data = tensor.AppendBytes(data, old[i]+in[i])
	}
	for port := range b.Out {
		out, err := b.AllocBytes(port, b.In[1].Shape, len(data))
		if err != nil {
			return err
		}
		copy(out.Bytes(), data)
	}
	return nil
}

// TestTextStates checks sequences whose states are strings of any length, with an initial state from a file and
// without one, in batches.
func TestTextStates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ strategy, state, first string }{
		"direct, file": {"direct {}", `initial_state { name: "x" data_type: TYPE_STRING dims: [ 1 ] data_file: "go" }`, "go"},
		"oldest, file": {"oldest {}", `initial_state { name: "x" data_type: TYPE_STRING dims: [ 1 ] data_file: "go" } use_same_buffer_for_input_output: true`, "go"},
		"direct":       {"direct {}", `use_growable_memory: true`, ""},
		"oldest":       {"oldest { max_candidate_sequences: 9 }", `initial_state { name: "x" data_type: TYPE_STRING dims: [ 1 ] zero_data: true }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &remembering{
				dtype: tensor.Bytes, dims: []int64{1}, strategy: tc.strategy, state: tc.state, model: join,
				files: map[string][]byte{"go": tensor.AppendBytes(nil, "go")},
			}
			b, s := m.make(t, 4)
			const sequences, length = 11, 6
			var jobs []*schedtest.Job
			want := map[*schedtest.Job]string{}
			said := make([]string, sequences)
			rng := rand.New(rand.NewPCG(1, 2))
			for k := range length {
				for id := range sequences {
					word := strings.Repeat(string(rune('a'+id)), rng.IntN(40))
					j := b.Job(1, b.Strings([]int64{1, 1}, word))
					j.Meta.Sequence = infer.Sequence{ID: uint64(id + 1), Start: k == 0, End: k == length-1}
					said[id] += word
					jobs, want[j] = append(jobs, j), tc.first+said[id]
				}
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for i, j := range jobs {
				if j.Err != nil {
					t.Fatal(j.Err)
				}
				if got := strs(&j.Out[0]); !slices.Equal(got, []string{want[j]}) {
					t.Errorf("request %d gave %q, want %q", i, got, want[j])
				}
				j.Release()
			}
		})
	}
}

// TestBadTextStates checks that files without valid strings fail the load.
func TestBadTextStates(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"empty": {}, "cut": {2, 0, 0, 0, 'g'}, "two": tensor.AppendBytes(tensor.AppendBytes(nil, "a"), "b"), "wild": {255, 255, 255, 255},
	} {
		cfg := &modelconfig.ModelConfig{}
		text := strings.NewReplacer("STRATEGY", "", "TYPE dims", "TYPE_STRING dims", "DIMS", "[1]", "REST",
			`initial_state { name: "x" data_type: TYPE_STRING dims: [ 1 ] data_file: "f" }`).Replace(rememberingConfig)
		if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
			t.Fatal(err)
		}
		port := config.Port{Name: "S", DType: tensor.Bytes, Dims: tensor.Of(1)}
		ready := config.Port{Name: "READY", DType: tensor.Bool, Dims: tensor.Of(1)}
		out := port
		out.Name = "S2"
		full := &config.Signature{Model: "m", Inputs: []config.Port{port, ready}, Outputs: []config.Port{out}}
		public, err := config.HideSequence(cfg, full)
		if err != nil {
			t.Fatal(err)
		}
		b := schedtest.NewBench(t, public, nil)
		_, err = sequence.New(sequence.Settings{
			Config: cfg, Signature: full, Public: public, Rules: sequence.RulesOf(cfg), Alloc: b.Alloc, Workers: b.Workers,
			ReadFile: func(string) ([]byte, error) { return data, nil },
		})
		if err == nil || !strings.HasPrefix(err.Error(), "initial state of state input 'S' of model 'm' from f: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// grow is a model whose state is the list of its inputs so far.
func grow(b *backends.Batch) error {
	rows, n := len(tensor.Slice[int32](&b.In[0])), b.In[1].Shape.Dim(1)
	in, old := tensor.Slice[int32](&b.In[0]), tensor.Slice[int32](&b.In[1])
	for port := range b.Out {
		out, err := b.Alloc(port, tensor.Int32, tensor.Of(int64(rows), n+1))
		if err != nil {
			return err
		}
		to := tensor.Slice[int32](out)
		for i := range rows {
			row := to[i*int(n+1) : (i+1)*int(n+1)]
			copy(row, old[i*int(n):(i+1)*int(n)])
			row[n] = in[i]
		}
	}
	return nil
}

// TestGrowingStates checks that sequences whose states have a variable extent, 1 at first, share batches only with
// states of the same length.
func TestGrowingStates(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"direct {}", "oldest {}"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			m := &remembering{dtype: tensor.Int32, dims: []int64{-1}, strategy: strategy, state: `use_growable_memory: true`, model: grow}
			b, s := m.make(t, 4)
			var jobs []*schedtest.Job
			var want [][]int32
			for id := range 9 {
				said := []int32{0}
				for k := range id + 2 {
					j := b.Job(1, number(t, b, infer.Sequence{}, int32(10*id+k)).In[0])
					j.Meta.Sequence = infer.Sequence{ID: uint64(id + 1), Start: k == 0, End: k == id+1}
					said = append(said, int32(10*id+k))
					jobs, want = append(jobs, j), append(want, slices.Clone(said))
				}
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for i, j := range jobs {
				if j.Err != nil {
					t.Fatal(j.Err)
				}
				if got := tensor.Slice[int32](&j.Out[0]); !slices.Equal(got, want[i]) {
					t.Errorf("request %d gave %v, want %v", i, got, want[i])
				}
				j.Release()
			}
		})
	}
}

// TestInPlace checks that a model may write the next state over the current one, that every sequence still begins
// with the initial state, and that a state of another type or shape is not written in place.
func TestInPlace(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	same, other := 0, 0
	m := &remembering{
		dtype: tensor.Int32, dims: []int64{1}, state: `initial_state { name: "x" data_type: TYPE_INT32 dims: [ 1 ] data_file: "seven" } use_same_buffer_for_input_output: true`,
		files: map[string][]byte{"seven": {7, 0, 0, 0}},
		model: func(b *backends.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			in, old := tensor.Slice[int32](&b.In[0]), tensor.Slice[int32](&b.In[1])
			wrong, err := b.AllocInPlace(1, tensor.FP32, b.In[1].Shape)
			if err != nil {
				return err
			}
			if wrong.Pointer() == b.In[1].Pointer() {
				t.Error("an output of another type has the state's memory")
			}
			out, err := b.AllocInPlace(0, tensor.Int32, b.In[1].Shape)
			if err != nil {
				return err
			}
			if out.Pointer() == b.In[1].Pointer() {
				t.Error("an ordinary output has the state's memory")
			}
			next, err := b.AllocInPlace(1, tensor.Int32, b.In[1].Shape)
			if err != nil {
				return err
			}
			if next.Pointer() == b.In[1].Pointer() {
				same++
			} else {
				other++
			}
			for i := range in {
				sum := old[i] + in[i]
				tensor.Slice[int32](out)[i], tensor.Slice[int32](next)[i] = sum, sum
			}
			return nil
		},
	}
	for _, strategy := range []string{"direct {}", "oldest {}"} {
		m.strategy = strategy
		b, s := m.make(t, 3)
		for range 3 {
			for k := range int32(4) {
				var jobs []*schedtest.Job
				for id := range uint64(3) {
					if k != 2 || id != 1 { // once without one of them
						jobs = append(jobs, number(t, b, infer.Sequence{ID: id + 1, Start: k == 0, End: k == 3}, 1))
					}
				}
				b.Submit(s, jobs...)
				schedtest.Wait(jobs...)
				for i, j := range jobs {
					want := 8 + k
					if k == 3 && i == 1 {
						want--
					}
					sum(t, j, want)
				}
			}
		}
	}
	if same == 0 || other != 0 {
		t.Errorf("%d batches in place, %d not", same, other)
	}
}

// listener receives the responses of decoupled models.
type listener struct {
	*schedtest.Bench
	mu  sync.Mutex
	got map[uint64][]int32 // guarded by mu
}

func (l *listener) Respond(w *scheduler.Task, out []tensor.Tensor, _ infer.Params, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer tensor.ReleaseAll(out)
	if len(out) != 1 {
		return status.Errorf(status.Internal, "%d outputs", len(out))
	}
	id := w.Meta.Sequence.ID
	l.got[id] = append(l.got[id], tensor.Slice[int32](&out[0])[0])
	return nil
}

// TestDecoupled checks sequences of a model that sends as many responses to each request as its input says. The
// state moves with the responses; a request without a response leaves it unchanged.
func TestDecoupled(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"direct {}", "oldest {}"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			m := &remembering{dtype: tensor.Int32, dims: []int64{1}, strategy: strategy, answers: true, model: func(b *backends.Batch) error {
				in, old, ready := tensor.Slice[int32](&b.In[0]), tensor.Slice[int32](&b.In[1]), b.In[2].Bytes()
				for row, n := range in {
					if ready[row] == 0 {
						n = 1 // no client receives it
					}
					for i := range n {
						var out [2]tensor.Tensor
						for k := range out {
							x, err := tensor.New(b.Allocator, tensor.Int32, tensor.Of(1, 1))
							if err != nil {
								return err
							}
							tensor.Slice[int32](&x)[0] = old[row] + i + 1
							out[k] = x
						}
						if err := b.Send(row, out[:], i == n-1); err != nil {
							return err
						}
					}
				}
				return nil
			}}
			b, s := m.make(t, 3)
			l := &listener{Bench: b, got: map[uint64][]int32{}}
			counts := []int32{2, 0, 3, 1}
			var jobs []*schedtest.Job
			for k, n := range counts {
				for id := range uint64(7) {
					j := number(t, b, infer.Sequence{ID: id + 1, Start: k == 0, End: k == len(counts)-1}, n)
					j.To = l
					jobs = append(jobs, j)
				}
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			for _, j := range jobs {
				if j.Err != nil {
					t.Error(j.Err)
				}
			}
			for id := range uint64(7) {
				if got := l.got[id+1]; !slices.Equal(got, []int32{1, 2, 3, 4, 5, 6}) {
					t.Errorf("sequence %d was answered %v", id+1, got)
				}
			}
		})
	}
}
