//go:build cgo

package tritonlib_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tritonlib"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// library returns the path of a library of testdata.
func library(tb testing.TB, name string) string {
	tb.Helper()
	return filepath.Join(preparedtest.Script(tb, "triton_backends", "prepare-triton-backends"), name, "libtriton_"+name+".so")
}

// settings returns the settings of a model with a library in its folder.
func settings(tb testing.TB, backend, text string) backends.Settings {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "1"), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(library(tb, backend), filepath.Join(dir, "libtriton_"+backend+".so")); err != nil {
		tb.Fatal(err)
	}
	cfg, err := config.Parse("config.pbtxt", []byte(`name: "m" backend: "`+backend+`" `+text))
	if err != nil {
		tb.Fatal(err)
	}
	return backends.Settings{Model: "m", Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: 1, Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler)}
}

func port(name, kind, dims string) string {
	return `{ name: "` + name + `" data_type: ` + kind + ` dims: [ ` + dims + ` ] }`
}

var (
	addsub   = "max_batch_size: 8 input [" + port("INPUT0", "TYPE_FP32", "2") + "," + port("INPUT1", "TYPE_FP32", "2") + "] output [" + port("SUM", "TYPE_FP32", "2") + "," + port("DIFFERENCE", "TYPE_FP32", "2") + "]"
	integers = "max_batch_size: 4 input [" + port("IN", "TYPE_INT32", "-1") + "] output [" + port("OUT", "TYPE_INT32", "-1") + "]"
	texts    = "max_batch_size: 4 input [" + port("IN", "TYPE_STRING", "-1") + "] output [" + port("OUT", "TYPE_STRING", "-1") + "]"
	single   = "input [" + port("IN", "TYPE_INT32", "1") + "] output [" + port("OUT", "TYPE_INT32", "1") + "]"
	streams  = single + " model_transaction_policy { decoupled: true }"
)

func fp32(dims []int64, v ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, v...)
}

func int32s(dims []int64, v ...int32) backendtest.Value {
	return backendtest.Of(tensor.Int32, dims, v...)
}

// TestContract runs the contract suite for backends.
//
// shows: backends.tritonlib
func TestContract(t *testing.T) {
	t.Parallel()
	sums := []backendtest.Value{fp32([]int64{2, 2}, 1, 2, 3, 4), fp32([]int64{2, 2}, 10, 20, 30, 40)}
	results := []backendtest.Value{fp32([]int64{2, 2}, 11, 22, 33, 44), fp32([]int64{2, 2}, -9, -18, -27, -36)}
	backendtest.Run(t, tritonlib.NewFactory(), backends.Options{},
		backendtest.Fixture{
			Name: "addsub", Settings: settings(t, "addsub", addsub), Rows: 2, In: sums, Want: results,
			Bad: []backendtest.Bad{{Name: "type", In: []backendtest.Value{int32s([]int64{1, 2}, 1, 2), sums[1]}, Code: status.InvalidArg}},
		},
		backendtest.Fixture{Name: "linked with libtritonserver.so", Settings: settings(t, "linked", addsub), Rows: 2, In: sums, Want: results},
		backendtest.Fixture{
			Name: "strings", Settings: settings(t, "probe", texts), Rows: 2,
			In:   []backendtest.Value{backendtest.Strings([]int64{2, 2}, "", "a", "b\x00c", strings.Repeat("long", 1000))},
			Want: []backendtest.Value{backendtest.Strings([]int64{2, 2}, "", "a", "b\x00c", strings.Repeat("long", 1000))},
		},
		backendtest.Fixture{
			Name: "empty", Settings: settings(t, "probe", integers),
			In: []backendtest.Value{int32s([]int64{1, 0})}, Want: []backendtest.Value{int32s([]int64{1, 0})},
		},
	)
}

// bench is a loaded model with an instance.
type bench struct {
	testing.TB
	backend backends.Backend
	model   backends.Model
	x       backends.Instance
	pool    *tensor.Pool
}

func open(tb testing.TB, options backends.Options, s backends.Settings) *bench {
	tb.Helper()
	b := &bench{TB: tb, pool: tensor.NewPool()}
	var err error
	if b.backend, err = tritonlib.NewFactory().New(options); err != nil {
		tb.Fatal(err)
	}
	if b.model, err = b.backend.Load(tb.Context(), s); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.model.Close(); err != nil {
			tb.Error(err)
		}
	})
	b.x = b.instance()
	return b
}

func (b *bench) instance() backends.Instance {
	b.Helper()
	x, err := b.model.NewInstance(b.Context(), tensor.Place{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	})
	return x
}

// do is a request: what the probe does, and its input.
type do struct {
	what string
	in   []backendtest.Value
	meta infer.Meta
	ctx  context.Context
	rows int
}

// batch joins requests. The caller must release its tensors.
func (b *bench) batch(list ...do) *backends.Batch {
	b.Helper()
	sig := b.model.Signature()
	batch := &backends.Batch{Out: make([]tensor.Tensor, len(sig.Outputs)), Allocator: b.pool}
	for i := range list {
		d := &list[i]
		if d.what != "" {
			d.meta.Params = append(d.meta.Params, infer.Param{Key: "do", Kind: infer.ParamString, String: d.what})
		}
		rows := max(1, d.rows)
		batch.Requests = append(batch.Requests, backends.Request{Meta: &d.meta, Ctx: d.ctx, First: batch.Rows, Rows: rows})
		batch.Rows += rows
	}
	for k := range sig.Inputs {
		joined := list[0].in[k]
		joined.Dims = append([]int64(nil), joined.Dims...)
		for _, d := range list[1:] {
			joined.Dims[0] += d.in[k].Dims[0]
			joined.Data = append(append([]byte(nil), joined.Data...), d.in[k].Data...)
		}
		batch.In = append(batch.In, joined.Tensor(b, b.pool))
	}
	return batch
}

// run executes requests as one batch and returns the outputs of each.
func (b *bench) run(list ...do) (out [][]backendtest.Value, batch *backends.Batch, err error) {
	b.Helper()
	batch = b.batch(list...)
	defer tensor.ReleaseAll(batch.In)
	err = b.x.Execute(b.Context(), batch)
	for i := range batch.Requests {
		tensors := batch.Requests[i].Out
		if len(batch.Requests) == 1 {
			tensors = batch.Out
		}
		var values []backendtest.Value
		for k := range tensors {
			values = append(values, backendtest.ValueOf(&tensors[k]))
		}
		tensor.ReleaseAll(tensors)
		out = append(out, values)
	}
	return out, batch, err
}

// TestBatch checks that each request of a batch has its own rows and its own response.
func TestBatch(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", integers))
	one, two := int32s([]int64{1, 2}, 1, 2), int32s([]int64{2, 2}, 3, 4, 5, 6)
	out, batch, err := b.run(do{in: []backendtest.Value{one}}, do{in: []backendtest.Value{two}, rows: 2}, do{what: "unknown output", in: []backendtest.Value{one}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]backendtest.Value{{one}, {two}, {{}}}, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if batch.Requests[0].Err != nil || batch.Requests[1].Err != nil || batch.Requests[2].Err == nil {
		t.Errorf("errors %v, %v, %v; want one of the last request only", batch.Requests[0].Err, batch.Requests[1].Err, batch.Requests[2].Err)
	}
	b = open(t, backends.Options{}, settings(t, "probe", texts))
	short, long := backendtest.Strings([]int64{1, 2}, "", "a"), backendtest.Strings([]int64{2, 2}, "bc", "", strings.Repeat("d", 300), "e")
	out, _, err = b.run(do{in: []backendtest.Value{short}}, do{in: []backendtest.Value{long}, rows: 2})
	if diff := cmp.Diff([][]backendtest.Value{{short}, {long}}, out); diff != "" || err != nil {
		t.Errorf("%v; strings (-want +got):\n%s", err, diff)
	}
}

// TestOutputsStay checks that the outputs of a batch stay as they are while another instance executes: the server takes them after Execute
// has returned.
func TestOutputsStay(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", integers))
	instances := []backends.Instance{b.x, b.instance()}
	batches := make([]*backends.Batch, len(instances))
	value := func(batch, request int) backendtest.Value { return int32s([]int64{1, 1}, int32(10*batch+request)) }
	for i, x := range instances {
		batches[i] = b.batch(do{in: []backendtest.Value{value(i, 0)}}, do{in: []backendtest.Value{value(i, 1)}})
		defer tensor.ReleaseAll(batches[i].In)
		if err := x.Execute(t.Context(), batches[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, batch := range batches {
		for k := range batch.Requests {
			out := batch.Requests[k].Out
			if !out[0].Present() {
				t.Errorf("batch %d, request %d: its output is gone", i, k)
				continue
			}
			if diff := cmp.Diff(value(i, k), backendtest.ValueOf(&out[0])); diff != "" {
				t.Errorf("batch %d, request %d (-want +got):\n%s", i, k, diff)
			}
			tensor.ReleaseAll(out)
		}
	}
}

// TestDescribe checks what a library learns of a request, and the parameters of its response.
func TestDescribe(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", integers))
	in := []backendtest.Value{int32s([]int64{1, 1}, 7)}
	for name, tt := range map[string]struct {
		meta        infer.Meta
		correlation string
		number      int64
	}{
		"number": {infer.Meta{ID: "r1", Timeout: 123, Sequence: infer.Sequence{ID: 42, Start: true}}, "", 42},
		"text":   {infer.Meta{ID: "r1", Timeout: 123, Sequence: infer.Sequence{Name: "s", Start: true}}, "s", 0},
	} {
		_, batch, err := b.run(do{what: "describe", in: in, meta: tt.meta})
		if err != nil || batch.Requests[0].Err != nil {
			t.Fatal(err, batch.Requests[0].Err)
		}
		want := infer.Params{
			{Key: "id", Kind: infer.ParamString, String: "r1"},
			{Key: "correlation", Kind: infer.ParamString, String: tt.correlation},
			{Key: "output", Kind: infer.ParamString, String: "OUT"},
			{Key: "number", Kind: infer.ParamInt, Int: tt.number},
			{Key: "timeout", Kind: infer.ParamInt, Int: 123},
			{Key: "start", Kind: infer.ParamBool, Bool: true},
			{Key: "half", Kind: infer.ParamDouble, Double: 0.5},
		}
		if diff := cmp.Diff(want, batch.Requests[0].ResponseParams); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestState checks that a library reads and updates the state of a sequence.
func TestState(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", single+` sequence_batching { state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: 1 } }`))
	if n := len(b.model.Signature().Outputs); n != 2 {
		t.Fatalf("%d outputs, want OUT and STATE_OUT", n)
	}
	out, batch, err := b.run(do{what: "sum", in: []backendtest.Value{int32s([]int64{1}, 5), int32s([]int64{1}, 37)}})
	if err != nil || batch.Requests[0].Err != nil {
		t.Fatal(err, batch.Requests[0].Err)
	}
	total := int32s([]int64{1}, 42)
	if diff := cmp.Diff([][]backendtest.Value{{total, total}}, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDeclared checks that a library sees the configuration without the inputs and outputs that sequence batching adds, as in Triton.
func TestDeclared(t *testing.T) {
	t.Parallel()
	s, printed := settings(t, "probe", single+` sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
		state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: 1 } }`), &logtest.Buffer{}
	s.Config, s.Declared = config.WithSequence(s.Config), s.Config
	s.Log = slog.New(slog.NewJSONHandler(printed, nil))
	b := open(t, backends.Options{}, s)
	if sig := b.model.Signature(); len(sig.Inputs) != 3 || len(sig.Outputs) != 2 {
		t.Errorf("%d inputs and %d outputs, want IN, START, STATE_IN and OUT, STATE_OUT", len(sig.Inputs), len(sig.Outputs))
	}
	if err := b.model.Close(); err != nil { // the log is whole then
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(printed.String()) {
		var entry struct{ Msg string }
		var shown struct{ Input, Output []struct{ Name string } }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal([]byte(entry.Msg), &shown) == nil {
			for _, port := range append(shown.Input, shown.Output...) {
				got = append(got, port.Name)
			}
		}
	}
	if diff := cmp.Diff([]string{"IN", "OUT"}, got); diff != "" {
		t.Errorf("ports that the library sees (-want +got):\n%s", diff)
	}
}

// TestNoPorts checks that a model without inputs and outputs loads, as in Triton.
func TestNoPorts(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "addsub", ""))
	if sig := b.model.Signature(); len(sig.Inputs) != 0 || len(sig.Outputs) != 0 {
		t.Errorf("signature %+v, want no inputs and outputs", sig)
	}
}

// TestOwnBatchIO checks that batch_input and batch_output are left to the library: requests of different lengths share a batch, and each has a
// response of its own length.
func TestOwnBatchIO(t *testing.T) {
	t.Parallel()
	s := settings(t, "probe", `max_batch_size: 4 input { name: "IN" data_type: TYPE_INT32 dims: -1 allow_ragged_batch: true } output [`+port("OUT", "TYPE_INT32", "-1")+`]
		batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 source_input: "IN" }
		batch_output { target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "IN" }`)
	b := open(t, backends.Options{}, s)
	sig, err := config.Agree(s.Config, b.model.Signature())
	if err != nil || len(sig.Computed) > 0 || len(sig.Scattered) > 0 || sig.Outputs[0].Unbatched || !sig.Inputs[0].Unbatched {
		t.Fatalf("%+v, %v; want a ragged input, and nothing that the server computes or splits", sig, err)
	}
	one, two := int32s([]int64{1, 2}, 1, 2), int32s([]int64{1, 3}, 3, 4, 5)
	batch := b.batch(do{in: []backendtest.Value{one}}, do{in: []backendtest.Value{two}})
	defer tensor.ReleaseAll(batch.In)
	for i, v := range []backendtest.Value{one, two} {
		batch.Requests[i].In = []tensor.Tensor{v.Tensor(b, b.pool)}
		defer tensor.ReleaseAll(batch.Requests[i].In)
	}
	if err := b.x.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, want := range []backendtest.Value{one, two} {
		out := batch.Requests[i].Out
		if diff := cmp.Diff(want, backendtest.ValueOf(&out[0])); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
		tensor.ReleaseAll(out)
	}
}

// TestLateState checks that a state which a decoupled model updates after the last response of a request is kept, alone and in a batch.
func TestLateState(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", "max_batch_size: 4 "+streams+` sequence_batching { state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: 1 } }`))
	value := func(v int32) backendtest.Value { return int32s([]int64{1, 1}, v) }
	request := func(in, state int32) do {
		return do{what: "late sum", in: []backendtest.Value{value(in), value(state)}}
	}
	for _, list := range [][]do{{request(1, 10)}, {request(1, 10), request(2, 20)}} {
		batch, r := b.batch(list...), &responses{}
		batch.Responses = r
		err := b.x.Execute(t.Context(), batch)
		tensor.ReleaseAll(batch.In)
		if err != nil || len(r.errs) > 0 || len(r.values) != len(list) {
			t.Fatalf("%d requests: %v, %v, %d responses", len(list), err, r.errs, len(r.values))
		}
		for i := range list {
			out := batch.Requests[i].Out
			if len(list) == 1 {
				out = batch.Out
			}
			state := b.model.Signature().Output("STATE_OUT")
			if len(out) <= state || !out[state].Present() {
				t.Errorf("request %d of %d: its state is lost", i, len(list))
				continue
			}
			if diff := cmp.Diff(value(11*int32(i+1)), backendtest.ValueOf(&out[state])); diff != "" {
				t.Errorf("request %d of %d: state (-want +got):\n%s", i, len(list), diff)
			}
			tensor.ReleaseAll(out)
		}
	}
}

// responses records the responses of a decoupled model.
type responses struct {
	mu       sync.Mutex
	values   []int32
	errs     []error
	finals   int
	detached int
	cancel   context.CancelFunc // called at the second response
}

func (r *responses) Respond(_ int, out []tensor.Tensor, _ infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = append(r.values, tensor.Slice[int32](&out[0])[0])
	if final {
		r.finals++
	}
	if len(r.values) == 2 && r.cancel != nil {
		r.cancel()
	}
	return nil
}

func (r *responses) RespondError(_ int, err error, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *responses) Detach() { r.detached++ }

// TestStream checks responses of another thread, sent after the request was released.
func TestStream(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", streams))
	for _, tt := range []struct {
		what   string
		n      int32
		cancel bool
		code   status.Code
	}{{"stream", 3, false, status.Unknown}, {"stream", 3000, false, status.Unknown}, {"broken stream", 2, false, status.Unavailable}, {"stream", 1 << 30, true, status.Unknown}} {
		ctx, cancel := context.WithCancel(t.Context())
		r := &responses{}
		if tt.cancel {
			r.cancel = cancel
		}
		batch := b.batch(do{what: tt.what, in: []backendtest.Value{int32s([]int64{1}, tt.n)}, ctx: ctx})
		batch.Responses = r
		err := b.x.Execute(t.Context(), batch)
		cancel()
		tensor.ReleaseAll(batch.In)
		if err != nil {
			t.Fatal(err)
		}
		if !tt.cancel && len(r.values) != int(tt.n) {
			t.Errorf("%d responses, want %d", len(r.values), tt.n)
		}
		for i, v := range r.values {
			if v != int32(i) {
				t.Fatalf("response %d has %d: they are not in order", i, v)
			}
		}
		if (tt.code != status.Unknown) != (len(r.errs) == 1) || len(r.errs) == 1 && status.CodeOf(r.errs[0]) != tt.code {
			t.Errorf("%s: errors %v, want code %v", tt.what, r.errs, tt.code)
		}
	}
}

// TestConcurrentStreams checks that an instance takes the next request while it streams.
func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", streams))
	var turns sync.Mutex // Execute is called by one goroutine at a time, until Detach
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			batch := b.batch(do{what: "stream", in: []backendtest.Value{int32s([]int64{1}, 500)}})
			defer tensor.ReleaseAll(batch.In)
			r := &detaching{turns: &turns}
			batch.Responses = r
			turns.Lock()
			err := b.x.Execute(t.Context(), batch)
			if r.detached == 0 {
				turns.Unlock()
			}
			if err != nil || len(r.values) != 500 {
				t.Errorf("%d responses, %v", len(r.values), err)
			}
		})
	}
	all.Wait()
}

// detaching gives the turn to the next request when the instance is free.
type detaching struct {
	responses
	turns *sync.Mutex
}

func (r *detaching) Detach() {
	r.detached++
	r.turns.Unlock()
}

// TestComplete checks that a library completes a configuration.
func TestComplete(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", ""))
	cfg := b.model.(backends.ConfigCompleter).CompletedConfig()
	if sig := b.model.Signature(); sig.MaxBatch != 4 || len(sig.Inputs) != 1 || cfg.GetMaxBatchSize() != 4 {
		t.Errorf("signature %+v, configuration %v", sig, cfg)
	}
	out, _, err := b.run(do{in: []backendtest.Value{int32s([]int64{1, 2}, 8, 9)}})
	if err != nil || out[0][0].DType != tensor.Int32 {
		t.Errorf("%v, %v", out, err)
	}
}
