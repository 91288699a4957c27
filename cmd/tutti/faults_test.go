//go:build faults

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/client"
	inject "github.com/tutti-server/tutti/internal/faults"
)

var (
	faultSeeds = flag.Uint64("fault-seeds", 40, "how many seeds TestFaults runs")
	faultSeed  = flag.Uint64("fault-seed", 1, "the first `seed` of TestFaults")
)

// faulty is a server whose calls to the outside fail, with its clients.
type faulty struct {
	addr   addresses
	http   *client.HTTP
	grpc   *client.GRPC
	python bool
	root   string
}

// TestFaults runs flows of requests and changes of models while calls to the outside fail as a seed decides. Each response is right or a
// clear error, nothing hangs, and once the faults end everything works again. At the end nothing is left. For one seed:
//
//	go test -tags faults -run TestFaults ./cmd/tutti -args -fault-seed 17 -fault-seeds 1
func TestFaults(t *testing.T) { //nolint:paralleltest // the plan is the process's, and goroutines are counted
	ignore := goleak.IgnoreCurrent()
	t.Run("seeds", func(t *testing.T) {
		f := &faulty{root: t.TempDir(), python: pythonCheck() == nil}
		f.models(t)
		f.addr = serve(t, "--model-repository="+f.root, "--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
		f.http = client.NewHTTP("http://"+f.addr.http, nil)
		f.grpc = dialGRPC(t, f.addr.grpc)
		defer func() {
			if err := errors.Join(f.http.Close(), f.grpc.Close()); err != nil {
				t.Error(err)
			}
		}()
		var failed, calls [inject.NumPoints]uint64
		for i := range *faultSeeds {
			seed := *faultSeed + i
			once, of := f.run(t, seed)
			for p := range failed {
				failed[p], calls[p] = failed[p]+once[p], calls[p]+of[p]
			}
			if t.Failed() {
				t.Fatalf("seed %d: go test -tags faults -run TestFaults ./cmd/tutti -args -fault-seed %d -fault-seeds 1", seed, seed)
			}
		}
		for p := range inject.NumPoints {
			t.Logf("%-14s %6d of %7d calls failed", p, failed[p], calls[p])
		}
	})
	goleak.VerifyNone(t, ignore)
}

// models writes the repository.
func (f *faulty) models(t *testing.T) {
	t.Helper()
	list := map[string]string{
		"plain": `backend: "identity" max_batch_size: 8 dynamic_batching { }
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }`,
		"chain": `platform: "ensemble" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step { model_name: "plain" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "t" } }
  step { model_name: "plain" model_version: -1 input_map { key: "INPUT0" value: "t" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
}`,
		"squares": `backend: "square" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }`,
	}
	if f.python {
		list["same"] = `backend: "python" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }`
	}
	for name, text := range list {
		dir := filepath.Join(f.root, name)
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "1"), 0o700), os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(text), 0o600))
		if name == "same" {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "1", "model.py"), []byte(`import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
`), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// faultTime is the time after which a request hangs.
const faultTime = time.Minute

// run runs the flows of a seed with its faults, and then without.
func (f *faulty) run(t *testing.T, seed uint64) (failed, calls [inject.NumPoints]uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
	p := &inject.Plan{Seed: seed}
	for i := range p.Chance {
		switch r.IntN(4) {
		case 0:
			p.Chance[i] = r.Float64() * 0.3
		case 1:
			p.Nth[i] = r.Uint64N(20)
		}
	}
	network := p.Chance[inject.NetworkWrite] > 0 || p.Nth[inject.NetworkWrite] > 0
	inject.Set(p)
	var wg sync.WaitGroup
	for k := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, k+1)) //nolint:gosec // reproducible
			for range 6 {
				f.judge(t, f.one(t, r), network)
			}
		})
	}
	wg.Wait()
	failed, calls = inject.Set(nil)
	f.recovers(t, seed)
	return failed, calls
}

// one makes one call.
func (f *faulty) one(t *testing.T, r *rand.Rand) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), faultTime)
	defer cancel()
	var err error
	switch r.IntN(8) {
	case 0:
		err = f.shared(ctx, r)
	case 1:
		err = f.http.Load(ctx, f.model(r))
	case 2:
		model := f.model(r)
		if err = f.http.Unload(ctx, model, false); err == nil {
			err = f.http.Load(ctx, model)
		}
	case 3:
		err = f.squares(ctx, r)
	default:
		err = f.infer(ctx, r, f.model(r))
	}
	if ctx.Err() != nil {
		t.Errorf("a call hangs: %v", err)
	}
	return err
}

// model draws a model that returns its input.
func (f *faulty) model(r *rand.Rand) string {
	if f.python {
		return one(r, "plain", "chain", "same")
	}
	return one(r, "plain", "chain")
}

// wrongFault is a response that is not the right one.
type wrongFault struct{ text string }

// Error says what is wrong.
func (w *wrongFault) Error() string { return w.text }

func (f *faulty) infer(ctx context.Context, r *rand.Rand, model string) error {
	data := make([]float32, 1+r.IntN(400_000)/(1+r.IntN(1000)))
	for i := range data {
		data[i] = float32(i + r.IntN(9))
	}
	req := &client.Request{Model: model, Inputs: []client.Tensor{client.Of("INPUT0", []int64{1, int64(len(data))}, data...)}}
	send := f.http.Infer
	if r.IntN(2) == 0 {
		send = f.grpc.Infer
	}
	resp, err := send(ctx, req)
	if err != nil {
		return err
	}
	if got, err := client.Values[float32](resp.Output("OUTPUT0")); err != nil || !slices.Equal(got, data) {
		return &wrongFault{fmt.Sprintf("%s responds with %d other values: %v", model, len(got), err)}
	}
	return nil
}

func (f *faulty) squares(ctx context.Context, r *rand.Rand) error {
	n, i := int32(r.IntN(30)), int32(0)
	err := f.grpc.Stream(ctx, &client.Request{Model: "squares", Inputs: []client.Tensor{client.Of("IN", []int64{1}, n)}}, func(resp *client.Response) error {
		if resp.Output("OUT") != nil {
			i++
		}
		return nil
	})
	if err == nil && i != n {
		return &wrongFault{fmt.Sprintf("squares responds %d times, expected %d", i, n)}
	}
	return err
}

// shared sends a request in shared memory that exists for it alone.
func (f *faulty) shared(ctx context.Context, r *rand.Rand) (err error) {
	name := "tutti-faults-" + strconv.FormatUint(r.Uint64(), 10)
	m, err := client.CreateShared("/"+name, 8192)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := f.http.RegisterSystem(ctx, name, m.Key, 0, 8192); err != nil {
		return err
	}
	in := client.Of("INPUT0", []int64{1, 1000}, make([]float32, 1000)...)
	for i := range in.Data {
		in.Data[i] = byte(i)
	}
	want := slices.Clone(in.Data)
	copy(m.Bytes, in.Data)
	in.Data, in.Region = nil, &client.Region{Name: name, Size: 4000}
	_, err = f.http.Infer(ctx, &client.Request{
		Model: "plain", Inputs: []client.Tensor{in}, Outputs: []string{"OUTPUT0"}, Regions: map[string]client.Region{"OUTPUT0": {Name: name, Offset: 4096, Size: 4000}},
	})
	if err == nil && !slices.Equal(m.Bytes[4096:8096], want) {
		err = &wrongFault{"the shared memory has other values than were sent"}
	}
	for range 50 { // a lost response does not keep the region
		gone := f.http.UnregisterSystem(ctx, name)
		if gone == nil {
			return err
		}
	}
	return errors.Join(err, &wrongFault{"the shared memory cannot be unregistered"})
}

// unclearText are texts that no client should see.
var unclearText = regexp.MustCompile(`panic|nil pointer|runtime error|goroutine \d`)

// judge checks that the error of a call is a clear one. Connections break when writing fails.
func (*faulty) judge(t *testing.T, err error, network bool) {
	t.Helper()
	switch w, e := (*wrongFault)(nil), (*client.Error)(nil); {
	case err == nil:
	case errors.As(err, &w):
		t.Error(err)
	case errors.As(err, &e) && (e.Text == "" || unclearText.MatchString(e.Text)):
		t.Errorf("an unclear error: %v", err)
	case !errors.As(err, &e) && !network:
		t.Errorf("no response: %v", err)
	}
}

// recovers checks that everything works once the faults are over. A worker may still start.
func (f *faulty) recovers(t *testing.T, seed uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), faultTime)
	defer cancel()
	r := rand.New(rand.NewPCG(seed, 99)) //nolint:gosec // reproducible
	again := func(what string, do func() error) {
		var err error
		for ctx.Err() == nil {
			if err = do(); err == nil {
				return
			}
		}
		t.Errorf("%s does not work after the faults: %v", what, err)
	}
	for _, model := range []string{"plain", "chain", "same"} {
		if model == "same" && !f.python {
			continue
		}
		again("loading "+model, func() error { return f.http.Load(ctx, model) })
		again(model, func() error { return f.infer(ctx, r, model) })
	}
	again("squares", func() error { return f.squares(ctx, r) })
	again("shared memory", func() error { return f.shared(ctx, r) })
	settled(t, f.addr)
}
