package exec_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// captureStore captures every request that matches a rule.
type captureStore struct {
	t      *testing.T
	store  *capture.Store
	tracer *tracing.Tracer
	id     uint64
}

func newCaptureStore(t *testing.T, rule inspect.CaptureRule) *captureStore {
	t.Helper()
	c := &captureStore{t: t, store: capture.New(capture.Settings{Bytes: 64 << 20, RequestBytes: 1 << 20})}
	var err error
	if c.tracer, err = tracing.New(tracing.Options{Recorder: c.store}); err != nil {
		t.Fatal(err)
	}
	if c.tracer.Capturing() {
		t.Error("captured before a recorder was attached")
	}
	v, err := c.store.StartCapture(rule)
	if err != nil {
		t.Fatal(err)
	}
	c.id = v.ID
	return c
}

// record attaches a recorder to a request.
func (c *captureStore) record(req *infer.Request) *infer.Request {
	req.Trace = c.tracer.Capture(nil, "e", 1, req.ID, &req.Origin)
	if req.Trace == nil {
		c.t.Error("the request is not captured")
	}
	return req
}

// all returns the captured requests, oldest first.
func (c *captureStore) all() (list []*inspect.TensorList) {
	c.t.Helper()
	v, err := c.store.FindCapture(c.id)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range v.Snapshots {
		tensors, err := c.store.Tensors(v.Snapshots[i].Trace+"-"+v.Snapshots[i].Span, true)
		if err != nil {
			c.t.Fatal(err)
		}
		list = append(list, tensors)
	}
	return list
}

// lines returns the tensors of a request with their readers, sorted.
func lines(list *inspect.TensorList) (all []string) {
	for i := range list.List {
		x := &list.List[i]
		text := x.Reason
		if x.HasContent {
			text = strings.Join(x.Preview.Values, " ")
		}
		all = append(all, x.Name+" = "+text+" > "+strings.Join(x.Readers, " "))
	}
	slices.Sort(all)
	return all
}

func nest(t *testing.T, steps, in string) *modelconfig.ModelConfig {
	t.Helper()
	inner, err := config.Parse("config.pbtxt", []byte(`platform: "ensemble" max_batch_size: 8
input { name: "`+in+`" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {`+steps+`}`))
	if err == nil {
		err = config.Normalise(inner, "inner")
	}
	if err != nil {
		t.Fatal(err)
	}
	return inner
}

// TestCaptureStreams checks the capture of an ensemble that nests a decoupled ensemble twice.
func TestCaptureStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{"count": counts(), "next": {sig: signature("next", 1, 8), run: add(1)}, "inner": {ensemble: nest(t, countThen, "N")}}
	x, stats := b.ensemble(t, models, "N", "OUT MID", `
step { model_name: "inner" model_version: -1 input_map { key: "N" value: "N" } output_map { key: "OUT" value: "MID" } }
step { model_name: "inner" model_version: -1 input_map { key: "N" value: "MID" } output_map { key: "OUT" value: "OUT" } }`)
	c := newCaptureStore(t, inspect.CaptureRule{})
	g := &collector{done: make(chan error, 1)}
	x.Submit(t.Context(), c.record(number(b, 2)), g)
	if err := <-g.done; err != nil {
		t.Fatal(err)
	}
	want := []string{
		"inner[0]/count.OUTPUT0@1 = 0 > inner[0]/next.INPUT0",
		"inner[0]/count.OUTPUT0@2 = 1 > inner[0]/next.INPUT0",
		"inner[0]/next.OUTPUT0@1 = 1 > inner[1]/count.INPUT0 answer.MID",
		"inner[0]/next.OUTPUT0@2 = 2 > inner[1]/count.INPUT0 answer.MID",
	}
	got := lines(c.all()[0])
	if diff := cmp.Diff(append(want, "request.N = 2 > inner[0]/count.INPUT0"), slices.Concat(got[:4], got[len(got)-1:])); diff != "" || len(got) != 11 {
		t.Errorf("%d tensors (-want +got):\n%s", len(got), diff)
	}
	captured := slices.ContainsFunc(stats.Copies.List(), func(m telemetry.Copy) bool { return m.Reason == telemetry.ForCapture })
	if mode != "" && !captured {
		t.Errorf("no copy is counted as one for a capture: %+v", stats.Copies.List())
	}
}

// TestCaptureRedactsNested checks that a rule redacts a tensor by its name inside a nested ensemble, and the
// outputs of a nested ensemble.
func TestCaptureRedactsNested(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	models := fakes{"m": {sig: signature("m", 1, 8), run: add(1)}, "inner": {ensemble: nest(t, `
step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "HIDDEN" } output_map { key: "OUTPUT0" value: "between" } }
step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUT" } }`, "HIDDEN")}}
	x, _ := b.ensemble(t, models, "N", "X", `
step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "N" } output_map { key: "OUTPUT0" value: "A" } }
step { model_name: "inner" model_version: -1 input_map { key: "HIDDEN" value: "A" } output_map { key: "OUT" value: "B" } }
step { model_name: "m" model_version: -1 input_map { key: "INPUT0" value: "B" } output_map { key: "OUTPUT0" value: "X" } }`)
	for _, tt := range []struct {
		rule inspect.CaptureRule
		want string // the redacted ones of the five tensors
	}{
		{inspect.CaptureRule{}, "-----"},
		{inspect.CaptureRule{RedactTensors: []string{"HIDDEN"}}, "-x---"},
		{inspect.CaptureRule{RedactTensors: []string{"between"}}, "--x--"},
		{inspect.CaptureRule{RedactTensors: []string{"N", "X"}}, "x---x"},
		{inspect.CaptureRule{RedactTensors: []string{"OUT"}}, "---x-"},
		{inspect.CaptureRule{RedactModels: []string{"inner"}}, "-xxx-"},
		{inspect.CaptureRule{RedactModels: []string{"m"}}, "xxxxx"},
		{inspect.CaptureRule{RedactModels: []string{"e"}}, "xxxxx"},
	} {
		c := newCaptureStore(t, tt.rule)
		if _, err := inferOne(t, x, c.record(number(b, 1))); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		for _, v := range c.all()[0].List {
			got[v.Node+1] = '-'
			if v.Reason == "redacted" {
				got[v.Node+1] = 'x'
			}
		}
		if string(got) != tt.want {
			t.Errorf("%+v: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// TestCaptureNests checks, with random nested ensembles under bursts of requests, that the captured outputs are
// those that the client received.
func TestCaptureNests(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // reproducible by seed
		b, f := newBench(t), newForest(rng, 1+rng.IntN(40))
		x, c := f.build(t, b), newCaptureStore(t, inspect.CaptureRule{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		responses := map[string]map[string]string{}
		for i := range 12 {
			req := b.request(float32(rng.IntN(50)))
			req.ID = strconv.Itoa(i)
			wg.Go(func() {
				a := submit(t.Context(), x, c.record(req))
				if a.err != nil {
					return
				}
				texts := map[string]string{}
				for name, v := range a.tensors() {
					texts[name] = strings.Trim(fmt.Sprint(v), "[]")
				}
				mu.Lock()
				defer mu.Unlock()
				responses[strconv.Itoa(i)] = texts
			})
		}
		wg.Wait()
		if err := x.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		all := c.all()
		if len(all) != 12 {
			t.Fatalf("%d of 12 requests are kept", len(all))
		}
		for _, list := range all {
			compareCapture(t, list, responses[list.Request], len(x.Plan().Nodes))
		}
	}
}

func compareCapture(t *testing.T, list *inspect.TensorList, want map[string]string, steps int) {
	t.Helper()
	got := map[string]string{}
	for i := range list.List {
		for _, r := range list.List[i].Readers {
			if name, ok := strings.CutPrefix(r, "answer."); ok && list.List[i].HasContent {
				got[name] = strings.Join(list.List[i].Preview.Values, " ")
			}
		}
	}
	if list.Status != "ok" {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || len(list.List) != steps+1 {
		t.Errorf("%d tensors of %d steps (-response +captured):\n%s", len(list.List), steps, diff)
	}
}
