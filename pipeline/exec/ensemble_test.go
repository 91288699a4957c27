package exec_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// fake is a model of a compiled ensemble.
type fake struct {
	sig *config.Signature
	run model
	// queued gives the model a queue and an instance; otherwise it runs inline.
	queued bool
	// instances is the number of additional instances of a queued model.
	instances int
	// alone makes a queued model execute one request per batch.
	alone bool
	// ensemble is inlined instead of a model. Optional.
	ensemble *modelconfig.ModelConfig
}

// fakes are models by name. It implements plan.Lookup.
type fakes map[string]fake

func (f fakes) Model(name string, _ int64) (plan.Model, error) {
	m, ok := f[name]
	if !ok {
		return plan.Model{}, status.Errorf(status.NotFound, "no %s", name)
	}
	return plan.Model{Signature: m.sig, Ensemble: m.ensemble}, nil
}

// ensemble compiles an ensemble from steps in text, and parameters as KEY=VALUE. Ports are "NAME" or "NAME?" (optional), all FP32 [-1].
func (b *bench) ensemble(tb testing.TB, models fakes, inputs, outputs, steps string, params ...string) (*exec.Executor, *telemetry.Model) {
	tb.Helper()
	var text strings.Builder
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		text.WriteString(`parameters { key: "` + key + `" value { string_value: "` + value + `" } }` + "\n")
	}
	text.WriteString(`name: "e" platform: "ensemble" max_batch_size: 8 ensemble_scheduling {` + steps + "}\n")
	for name := range strings.FieldsSeq(inputs) {
		name, optional := strings.CutSuffix(name, "?")
		text.WriteString(`input { name: "` + name + `" data_type: TYPE_FP32 dims: [ -1 ] `)
		if optional {
			text.WriteString("optional: true ")
		}
		text.WriteString("}\n")
	}
	for name := range strings.FieldsSeq(outputs) {
		text.WriteString(`output { name: "` + name + `" data_type: TYPE_FP32 dims: [ -1 ] }` + "\n")
	}
	cfg, err := config.Parse("config.pbtxt", []byte(text.String()))
	if err != nil {
		tb.Fatal(err)
	}
	if err := config.Normalise(cfg, "e"); err != nil {
		tb.Fatal(err)
	}
	sites := &deviceLookup{fakes: models, bench: b, at: map[string]bool{}}
	p, err := plan.Compile(cfg, 1, sites)
	if err != nil {
		tb.Fatal(err)
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	known := map[string]scheduler.Scheduler{}
	for i := range p.Nodes {
		name := p.Nodes[i].Model
		if known[name] == nil && p.Nodes[i].Operation == nil {
			known[name] = b.scheduler(models[name], sites.at[name])
		}
		targets[i] = known[name]
	}
	stats := b.stats("e")
	return exec.New(exec.Settings{Plan: p, Targets: targets, Stats: stats, Workers: b.workers, Mover: b.mover(), Alloc: b.alloc, Log: b.log}), stats
}

// scheduler returns the scheduler of a model. With at, its instances are on the device.
func (b *bench) scheduler(m fake, at bool) scheduler.Scheduler {
	instances := []backends.Instance{m.run}
	if m.alone && m.queued {
		instances = slices.Repeat(instances, 1+m.instances)
	}
	if at {
		instances = b.device.wrap(b, instances)
	}
	switch {
	case m.queued && !m.alone:
		return dynamic.New(dynamic.Settings{Runner: b.runner(m.sig), Instances: instances, Workers: b.workers}, dynamic.Rules{MaxBatch: 8})
	case m.queued || at:
		return direct.New(direct.Settings{Runner: b.runner(m.sig), Instances: instances, Workers: b.workers})
	default:
		return direct.NewInline(direct.Settings{Runner: b.runner(m.sig), Instances: instances})
	}
}

// deviceLookup is a Lookup that also returns which models run on the device.
type deviceLookup struct {
	fakes
	bench *bench
	at    map[string]bool
}

func (s *deviceLookup) Model(name string, version int64) (plan.Model, error) {
	m, err := s.fakes.Model(name, version)
	if err != nil || m.Ensemble != nil {
		return m, err
	}
	at, known := s.at[name]
	if !known {
		at = s.bench.device.decide()
		s.at[name] = at
	}
	if at {
		m.Places = []tensor.Place{s.bench.device.device.Place()}
	}
	return m, nil
}

// responseSink is a Sink that keeps the response and the error.
type responseSink struct {
	resp   *infer.Response
	err    error
	closed atomic.Bool
	done   chan struct{}
}

func newResponseSink() *responseSink { return &responseSink{done: make(chan struct{})} }

func (a *responseSink) Send(r *infer.Response) { a.resp = r }
func (a *responseSink) Close(err error) {
	a.err = err
	a.closed.Store(true)
	close(a.done)
}

// tensors returns the outputs by name and releases the response.
func (a *responseSink) tensors() map[string][]float32 {
	got := map[string][]float32{}
	for i := range a.resp.Outputs {
		o := &a.resp.Outputs[i]
		got[o.Name] = append([]float32{}, tensor.Slice[float32](&o.Tensor)...)
	}
	a.resp.Release()
	return got
}

// submit sends a request and waits for its end.
func submit(ctx context.Context, x infer.Inferer, req *infer.Request) *responseSink {
	a := newResponseSink()
	x.Submit(ctx, req, a)
	<-a.done
	return a
}

// counting wraps a model and counts its executions.
func counting(n *atomic.Int32, m model) model {
	return func(b *backends.Batch) error {
		n.Add(1)
		return m(b)
	}
}

// optionalPair returns a signature with a required and an optional input, and an output for each.
func optionalPair(name string) *config.Signature {
	s := signature(name, 2, 8)
	s.Inputs[1].Optional = true
	return s
}

func TestOptionalInputsAndMissingOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{"pair": {sig: optionalPair("pair"), run: add(1)}}
	const steps = `
step { model_name: "pair" model_version: -1 input_map { key: "INPUT0" value: "A" } input_map { key: "INPUT1" value: "B" }
  output_map { key: "OUTPUT0" value: "MID" } output_map { key: "OUTPUT1" value: "MAYBE" } }
step { model_name: "pair" model_version: -1 input_map { key: "INPUT0" value: "MID" } input_map { key: "INPUT1" value: "MAYBE" }
  output_map { key: "OUTPUT0" value: "X" } output_map { key: "OUTPUT1" value: "Y" } }`
	x, stats := b.ensemble(t, models, "A B?", "X Y", steps)
	for _, tc := range []struct {
		name string
		in   map[string]float32
		want map[string][]float32
	}{
		{"both", map[string]float32{"A": 1, "B": 10}, map[string][]float32{"X": {3}, "Y": {12}}},
		{"one", map[string]float32{"A": 1}, map[string][]float32{"X": {3}}},
	} {
		req := infer.NewRequest()
		for _, name := range []string{"A", "B"} {
			if v, ok := tc.in[name]; ok {
				req.Inputs = append(req.Inputs, infer.Named{Name: name, Tensor: b.floats([]float32{v})})
			}
		}
		a := submit(t.Context(), x, req)
		if a.err != nil {
			t.Fatalf("%s: %v", tc.name, a.err)
		}
		got := a.tensors()
		if len(got) != len(tc.want) || !slices.Equal(got["X"], tc.want["X"]) || !slices.Equal(got["Y"], tc.want["Y"]) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
	if stats.Requests().Count != 2 || stats.Rows() != 2 || stats.Executions() != 2 {
		t.Errorf("counted %d requests, %d rows", stats.Requests().Count, stats.Rows())
	}
}

// TestRequiredInputNotProduced checks the error when a step omits an output that the next one requires.
func TestRequiredInputNotProduced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{
		"empty": {sig: signature("empty", 1, 8), run: func(*backends.Batch) error { return nil }},
		"next":  {sig: signature("next", 1, 8), run: share},
	}
	x, stats := b.ensemble(t, models, "A", "X", `
step { model_name: "empty" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "next" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "X" } }`)
	req := infer.NewRequest()
	req.ID = "7"
	req.Inputs = append(req.Inputs, infer.Named{Name: "A", Tensor: b.floats([]float32{1})})
	a := submit(t.Context(), x, req)
	const want = "in ensemble 'e', [request id: 7] unexpected deadlock, at least one output is not set while no more ensemble steps can be made: input 'INPUT0' of model 'next' is required but tensor 'MID' was not produced"
	if a.err == nil || a.err.Error() != want {
		t.Errorf("got error %v, want %q", a.err, want)
	}
	if n, _ := stats.Failures[telemetry.Other].Load(); n != 1 {
		t.Errorf("counted %d failures", n)
	}
}

// TestOutputLeftOut checks that a requested output which the last step omits is missing from the response and
// logged at the debug level.
func TestOutputLeftOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var text bytes.Buffer
	b.log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	models := fakes{
		"empty": {sig: signature("empty", 1, 8), run: func(*backends.Batch) error { return nil }},
		"whole": {sig: signature("whole", 1, 8), run: share},
	}
	x, _ := b.ensemble(t, models, "A", "X Y", `
step { model_name: "whole" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "X" } }
step { model_name: "empty" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "Y" } }`)
	req := infer.NewRequest()
	req.ID = "7"
	req.Inputs = append(req.Inputs, infer.Named{Name: "A", Tensor: b.floats([]float32{1})})
	a := submit(t.Context(), x, req)
	if a.err != nil || len(a.resp.Outputs) != 1 || a.resp.Outputs[0].Name != "X" {
		t.Errorf("got %v, error %v, want X only", a.resp, a.err)
	}
	if a.resp != nil {
		a.resp.Release()
	}
	const want = `msg="Composing models did not output tensor Y" ensemble=e request=7`
	if !strings.Contains(text.String(), want) || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("got log %q, want one line with %q", text.String(), want)
	}
}

const threeOutputs = `
step { model_name: "one" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "X" } }
step { model_name: "two" model_version: -1 input_map { key: "INPUT0" value: "X" } output_map { key: "OUTPUT0" value: "Y" } }
step { model_name: "three" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "Z" } }`

// TestRequestedOutputs checks that only the nodes of the requested outputs execute, and that the response has the
// request's order.
func TestRequestedOutputs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ask   []string
		names []string
		runs  [3]int32
	}{
		{"all", nil, []string{"X", "Y", "Z"}, [3]int32{1, 1, 1}},
		{"first", []string{"X"}, []string{"X"}, [3]int32{1, 0, 0}},
		{"last of a chain", []string{"Y"}, []string{"Y"}, [3]int32{1, 1, 0}},
		{"other branch", []string{"Z"}, []string{"Z"}, [3]int32{0, 0, 1}},
		{"other order", []string{"Z", "X"}, []string{"Z", "X"}, [3]int32{1, 0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var runs [3]atomic.Int32
			models := fakes{}
			for i, name := range []string{"one", "two", "three"} {
				models[name] = fake{sig: signature(name, 1, 8), run: counting(&runs[i], add(float32(i+1))), queued: i == 1}
			}
			x, _ := b.ensemble(t, models, "A", "X Y Z", threeOutputs)
			req := infer.NewRequest()
			req.Inputs = append(req.Inputs, infer.Named{Name: "A", Tensor: b.floats([]float32{0})})
			req.Outputs = append(req.Outputs, tc.ask...)
			a := submit(t.Context(), x, req)
			if a.err != nil {
				t.Fatal(a.err)
			}
			var names []string
			for i := range a.resp.Outputs {
				names = append(names, a.resp.Outputs[i].Name)
			}
			if !slices.Equal(names, tc.names) {
				t.Errorf("outputs %v, want %v", names, tc.names)
			}
			for name, got := range a.tensors() {
				if want := map[string]float32{"X": 1, "Y": 3, "Z": 3}[name]; !slices.Equal(got, []float32{want}) {
					t.Errorf("output %s is %v, want %v", name, got, want)
				}
			}
			for i := range runs {
				if n := runs[i].Load(); n != tc.runs[i] {
					t.Errorf("step %d was executed %d times, want %d", i, n, tc.runs[i])
				}
			}
		})
	}
}

// TestFirstFailureWins fails one branch while the other executes. It checks that the request ends with the first
// failure after the other branch, and that no further node starts.
func TestFirstFailureWins(t *testing.T) {
	t.Parallel()
	b := newHostBench(t) // where inline models complete first
	a := newResponseSink()
	var after atomic.Int32
	models := fakes{
		// Inline, so that it fails before the queued model starts.
		"bad": {sig: signature("bad", 1, 8), run: func(*backends.Batch) error { return status.Errorf(status.Unavailable, "first") }},
		"slow": {sig: signature("slow", 1, 8), queued: true, run: func(*backends.Batch) error {
			if a.closed.Load() {
				t.Error("the request ended while a step executed")
			}
			return errors.New("second")
		}},
		"fine": {sig: signature("fine", 1, 8), queued: true, run: func(batch *backends.Batch) error {
			if a.closed.Load() {
				t.Error("the request ended while a step executed")
			}
			return share(batch)
		}},
		"after": {sig: signature("after", 1, 8), run: counting(&after, share)},
	}
	x, stats := b.ensemble(t, models, "A", "X Y Z", `
step { model_name: "slow" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "X" } }
step { model_name: "fine" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "bad" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "Y" } }
step { model_name: "after" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "Z" } }`)
	req := infer.NewRequest()
	req.Inputs = append(req.Inputs, infer.Named{Name: "A", Tensor: b.floats([]float32{1})})
	x.Submit(t.Context(), req, a)
	<-a.done
	if a.err == nil || a.err.Error() != "in ensemble 'e', first" || status.CodeOf(a.err) != status.Unavailable {
		t.Errorf("got error %v (%v), want the first", a.err, status.CodeOf(a.err))
	}
	if a.resp != nil || after.Load() != 0 {
		t.Errorf("response %v, the next step executed %d times", a.resp, after.Load())
	}
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if n, _ := stats.Failures[telemetry.Other].Load(); n != 1 {
		t.Errorf("counted %d failures", n)
	}
}

// TestCancel checks that no further step starts when the client cancels during the first.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, queued := range []bool{false, true} {
		t.Run(map[bool]string{false: "inline", true: "queued"}[queued], func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var second atomic.Int32
			models := fakes{
				"one": {sig: signature("one", 1, 8), queued: queued, run: func(batch *backends.Batch) error {
					cancel()
					return share(batch)
				}},
				"two": {sig: signature("two", 1, 8), queued: queued, run: counting(&second, share)},
			}
			x, stats := b.ensemble(t, models, "A", "X", `
step { model_name: "one" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "two" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "X" } }`)
			req := infer.NewRequest()
			req.Inputs = append(req.Inputs, infer.Named{Name: "A", Tensor: b.floats([]float32{1})})
			a := submit(ctx, x, req)
			if status.CodeOf(a.err) != status.Cancelled || a.err.Error() != "" {
				t.Errorf("got error %q, want a cancellation without a text", a.err)
			}
			if n := second.Load(); n != 0 {
				t.Errorf("the second step was executed %d times", n)
			}
			if n, _ := stats.Failures[telemetry.Canceled].Load(); n != 1 {
				t.Errorf("counted %d cancellations", n)
			}
		})
	}
}

// TestDrain checks that Drain waits for active requests.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	sig := signature("m", 1, 8)
	x := b.executor(plan.Single(sig), b.inline(sig, func(batch *backends.Batch) error {
		close(entered)
		<-leave
		return share(batch)
	}))
	if err := x.Drain(t.Context()); err != nil {
		t.Errorf("drain of nothing: %v", err)
	}
	a := newResponseSink()
	go x.Submit(t.Context(), b.request(1), a)
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("drain with an active request: %v", err)
	}
	close(leave)
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if !a.closed.Load() {
		t.Error("drained before the request ended")
	}
	<-a.done
	a.resp.Release()
}
