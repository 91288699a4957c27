//go:build cgo

package python_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// gpuWorld is a repository of Python models on the GPUs of the checking driver.
type gpuWorld struct {
	*repository.Repository
	alloc   tensor.Allocator
	gpus    []*cuda.Device
	metrics *telemetry.Metrics
	log     *logtest.Buffer
}

// newGPUWorld writes models, a configuration by name, and serves them. When the test ends no memory may be held in the server, and
// neither its driver nor one of a worker that has ended may have found a fault.
func newGPUWorld(t *testing.T, models map[string]string) *gpuWorld {
	t.Helper()
	options(t)
	mini, err := filepath.Abs("testdata/minigpu")
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report")
	t.Setenv("TUTTI_TEST_MINIGPU", mini)
	t.Setenv("TUTTI_CUDA_CHECK_REPORT", report)
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &gpuWorld{metrics: telemetry.NewMetrics(), log: &logtest.Buffer{}}
	if w.gpus, err = driver.Devices(cuda.Options{Only: []int{0, 1}}); err != nil {
		t.Fatal(err)
	}
	pool := tensor.NewPool()
	w.alloc = pool
	registry, err := backends.NewRegistry(python.NewFactory())
	if err != nil {
		t.Fatal(err)
	}
	s := repository.Settings{
		Roots: []string{gpuModels(t, models)}, Backends: registry, Alloc: pool, Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		BackendConfig: map[string]map[string]string{"python": {"stub-timeout-seconds": "600"}},
	}
	for _, d := range w.gpus {
		s.Accelerators = append(s.Accelerators, d)
	}
	if w.Repository, err = repository.Open(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, d := range w.gpus {
			if n := d.InUse(); n != 0 {
				t.Errorf("%d bytes are in use at %s", n, d.Place())
			}
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes of host memory are in use", n)
		}
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
		if text, _ := os.ReadFile(report); bytes.Contains(text, []byte("fault: ")) { //nolint:gosec // no worker may have used CUDA
			t.Errorf("the drivers of the workers report\n%s", text)
		}
	})
	return w
}

// gpuModels writes a model repository. All models have the file testdata/gpu/model/1/model.py, but for ensembles.
func gpuModels(t *testing.T, models map[string]string) string {
	t.Helper()
	root := t.TempDir()
	code, err := os.ReadFile("testdata/gpu/model/1/model.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range models {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(dir, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := cfg
		if !strings.Contains(cfg, "ensemble") {
			text = `backend: "python" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
` + cfg
			if err := os.WriteFile(filepath.Join(dir, "1", "model.py"), code, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	stays = `parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
`
	onCPU = `instance_group { kind: KIND_CPU }
`
	onGPU = `instance_group { kind: KIND_GPU gpus: 0 }
`
)

func caseOf(name string) string {
	return `parameters { key: "CASE" value { string_value: "` + name + `" } }
`
}

// chain is an ensemble of models in a row.
func chain(models ...string) string {
	var text strings.Builder
	text.WriteString(`platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
`)
	for i, m := range models {
		in, out := fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i+1)
		if i == 0 {
			in = "IN"
		}
		if i == len(models)-1 {
			out = "OUT"
		}
		fmt.Fprintf(&text, "step { model_name: %q model_version: -1 input_map { key: \"IN\" value: %q } output_map { key: \"OUT\" value: %q } }\n", m, in, out)
	}
	return text.String() + "}"
}

// infer sends a request of one row and returns the output.
func (w *gpuWorld) infer(ctx context.Context, model, way string, values ...float32) ([]float32, error) {
	in, err := tensor.New(w.alloc, tensor.FP32, tensor.Of(1, int64(len(values))))
	if err != nil {
		return nil, err
	}
	copy(tensor.Slice[float32](&in), values)
	req := infer.NewRequest()
	req.Model, req.Inputs = model, append(req.Inputs, infer.Named{Name: "IN", Tensor: in})
	if way != "" {
		req.Params = append(req.Params, infer.Param{Key: "case", Kind: infer.ParamString, String: way})
	}
	call := infer.NewCall()
	w.Submit(ctx, req, call)
	resp, err := call.Wait()
	if err != nil {
		return nil, err
	}
	defer resp.Release()
	return slices.Clone(tensor.Slice[float32](&resp.Outputs[0].Tensor)), nil
}

// want checks a response.
func (w *gpuWorld) want(t *testing.T, model, way string, in, out []float32) {
	t.Helper()
	if got, err := w.infer(t.Context(), model, way, in...); err != nil || !slices.Equal(got, out) {
		t.Errorf("%s, case '%s': %v, %v; want %v\n%s", model, way, got, err, out, w.log)
	}
}

// fails checks the error of a request.
func (w *gpuWorld) fails(t *testing.T, model, way string, parts ...string) {
	t.Helper()
	_, err := w.infer(t.Context(), model, way, 1, 2)
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s, case '%s': error %v, want %q", model, way, err, part)
		}
	}
}

// moves returns the moves of the metrics, without those of the reasons given.
func (w *gpuWorld) moves(t *testing.T, without ...string) []string {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(w.metrics, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	var list []string
	for line := range strings.SplitSeq(rec.Body.String(), "\n") {
		if strings.HasPrefix(line, "ensemble_copies_total{") && !slices.ContainsFunc(without, func(r string) bool { return strings.Contains(line, `reason="`+r+`"`) }) {
			list = append(list, line)
		}
	}
	return list
}

var someValues = []float32{1.5, -2, 3.25, 1e-3, 0, 7}

// TestGPUSteps checks that tensors stay on the GPU from step to step of an ensemble of Python models, by any way of DLPack, and
// that the ledger has nothing but the copy of the response and the named copies to and from the processes.
func TestGPUSteps(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{
		"up": onGPU + caseOf("up"), "compute": onGPU + stays + caseOf("compute"), "capsule": onCPU + stays + caseOf("capsule"),
		"renamed": onGPU + stays + caseOf("renamed"), "through": onGPU + stays + caseOf("through"),
		"chain": chain("up", "compute", "capsule", "renamed", "through"),
	})
	for i := range 5 {
		values := slices.Clone(someValues)
		values[0] = float32(i)
		w.want(t, "chain", "", values, values)
	}
	if list := w.moves(t, "process", "response"); len(list) > 0 {
		t.Errorf("moves: %v", list)
	}
	if list := strings.Join(w.moves(t), "\n"); !strings.Contains(list, `from="device:0",model="chain",reason="response",tensor="OUT",to="host"`) || strings.Count(list, `reason="process"`) != 9 {
		t.Errorf("moves:\n%s", list)
	}
}

// TestGPUPlacement checks where inputs are: on the host by default, where they were with FORCE_CPU_ONLY_INPUT_TENSORS "no", also
// for instances on the CPU; and what the model learns of its instance group.
func TestGPUPlacement(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newGPUWorld(t, map[string]string{
		"up": onGPU + caseOf("up"), "second": onCPU + caseOf("second"),
		"forced": onGPU + caseOf("where"), "where": onCPU + stays + caseOf("where"), "yes": onGPU + caseOf("where") + strings.Replace(stays, "no", "yes", 1),
		"plain": caseOf("args_of"), "cpu": onCPU + caseOf("args_of"), "model": "instance_group { kind: KIND_MODEL }\n" + caseOf("args_of"),
		"gpu1": "instance_group { kind: KIND_GPU gpus: 1 }\n" + caseOf("args_of"), "ignore": onGPU + stays + caseOf("ignore"), "wrong": strings.Replace(stays, "no", "maybe", 1),
		"to_forced": chain("up", "forced"), "to_where": chain("up", "where"), "to_yes": chain("up", "yes"), "second_where": chain("second", "where"),
		"to_ignore": chain("up", "ignore"),
	})
	host, device := []float32{1, 1, 0, 2}, []float32{0, 2, 0, 2}
	w.want(t, "to_forced", "", []float32{1, 2}, host)
	w.want(t, "to_yes", "", []float32{1, 2}, host)
	w.want(t, "where", "", []float32{1, 2}, host)
	w.want(t, "to_where", "", []float32{1, 2}, device)
	w.want(t, "second_where", "", []float32{1, 2}, []float32{0, 2, 1, 2})
	w.want(t, "cpu", "", []float32{1}, []float32{0, 0})
	w.want(t, "model", "", []float32{1}, []float32{0, 0})
	w.want(t, "gpu1", "", []float32{1}, []float32{1, 1})
	if got, err := w.infer(t.Context(), "plain", "", 1); err != nil || got[0] != 1 {
		t.Errorf("KIND_AUTO: %v, %v; want KIND_GPU as in Triton", got, err)
	}
	w.want(t, "to_ignore", "", []float32{1}, []float32{0}) // no driver, and so no context
	if i := slices.IndexFunc(w.Failures(), func(f repository.Failure) bool { return f.Model == "wrong" }); i < 0 ||
		!strings.Contains(w.Failures()[i].Err.Error(), "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: 'maybe'") {
		t.Errorf("failures: %v", w.Failures())
	}
	if list := w.moves(t, "process", "response", "host_step"); len(list) > 0 {
		t.Errorf("moves: %v", list)
	}
}

// TestGPUErrors checks the errors of models that use GPU tensors wrongly, in Triton's words where it has them.
func TestGPUErrors(t *testing.T) { //nolint:paralleltest // it sets the environment
	t.Setenv("TUTTI_CUDA_CHECK_DEVICES", "3")
	w := newGPUWorld(t, map[string]string{
		"up": onGPU + caseOf("up"), "work": onGPU + stays, "chain": chain("up", "work"),
	})
	w.fails(t, "chain", "numpy", "Tensor is stored in GPU and cannot be converted to NumPy.")
	w.fails(t, "chain", "raises", "ValueError: no such luck with 2 elements")
	w.fails(t, "chain", "fork", "GPU memory cannot be used in a process that the model has forked")
	w.want(t, "chain", "empty", []float32{1, 2}, nil)
	w.want(t, "chain", "mixed", []float32{1, 2}, []float32{5})
	w.want(t, "chain", "compute", []float32{1, 2}, []float32{1, 2})
}
