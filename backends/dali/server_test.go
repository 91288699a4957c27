package dali_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/steps"
)

// repository is a folder of models.
type repository struct {
	t    *testing.T
	root string
}

// add writes a model with its files and, unless it is empty, its configuration.
func (r *repository) add(model string, files map[string]string, pbtxt string) {
	r.t.Helper()
	dir := filepath.Join(r.root, model)
	if err := os.MkdirAll(filepath.Join(dir, "1"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "1", file), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	if pbtxt == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(pbtxt), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// serve starts a server of the repository and returns its address.
func (r *repository) serve() string {
	r.t.Helper()
	s, err := tutti.Open(r.t.Context(), tutti.Settings{
		Args: []string{
			"--model-repository=" + r.root, "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
			"--exit-on-error=false", "--strict-readiness=false", "--log-error=false", "--log-warning=false", "--log-info=false",
			"--backend-config=dali,python-runtime=" + preparedtest.Runtime(r.t, "dali"), "--backend-config=python,stub-timeout-seconds=600",
		},
		Components: tutti.Components{
			Backends: func(*steps.Registry) []backends.Factory { return []backends.Factory{factory(), python.NewFactory()} },
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := s.Close(r.t.Context()); err != nil {
			r.t.Log(err)
		}
	})
	if err := s.Start(); err != nil {
		r.t.Fatal(err)
	}
	return s.HTTPAddress()
}

func dial(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.Dial("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// imageFiles returns the files of the model jpeg_dali, and a JPEG file.
func imageFiles(t *testing.T) (files map[string]string, jpeg []byte) {
	t.Helper()
	dir := filepath.Join("..", "..", "examples", "backends", "dali", "jpeg_dali")
	text, err := os.ReadFile(filepath.Join(dir, "1", "dali.py"))
	if err != nil {
		t.Fatal(err)
	}
	if jpeg, err = os.ReadFile(filepath.Join(dir, "progressive.jpg")); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"dali.py": string(text)}, jpeg
}

// The configurations of the examples of Triton's DALI backend.
const (
	identityConfig = `name: "dali_identity" backend: "dali" max_batch_size: 256
		input { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: -1 allow_ragged_batch: true } output { name: "DALI_OUTPUT_0" data_type: TYPE_UINT8 dims: -1 }
		dynamic_batching { max_queue_delay_microseconds: 50000 }`
	multiConfig = `name: "dali_multi_input" backend: "dali" max_batch_size: 256 default_model_filename: "model.dali"
		input { name: "DALI_X_INPUT" data_type: TYPE_UINT8 dims: -1 } input { name: "DALI_Y_INPUT" data_type: TYPE_UINT8 dims: -1 }
		input { name: "DALI_SCALAR" data_type: TYPE_INT32 dims: 1 }
		output { name: "DALI_unchanged" data_type: TYPE_INT32 dims: -1 } output { name: "DALI_changed" data_type: TYPE_INT32 dims: -1 }`
	partialConfig = `name: "partial" backend: "dali" max_batch_size: 32 input { name: "DALI_INPUT_0" data_type: TYPE_FP16 allow_ragged_batch: true }
		output { name: "RENAMED" } output { name: "DALI_OUTPUT_1" } dynamic_batching { preferred_batch_size: [16, 32] max_queue_delay_microseconds: 500 }`
)

// TestExamples serves the documented examples of Triton's DALI backend that run on a CPU, and its tests of what a configuration may leave out.
// shows: backends.dali
func TestExamples(t *testing.T) {
	t.Parallel()
	r := &repository{t, t.TempDir()}
	r.add("dali_identity", definition("    return fn.external_source(device=\"cpu\", name=\"DALI_INPUT_0\")\n", ""), identityConfig)
	r.add("dali_multi_input", serialized(t, "multi_input"), multiConfig)
	r.add("model.dali", serialized(t, "unbatched"), `max_batch_size: 0 output { name: "DALI_OUTPUT_0" } output { name: "DALI_OUTPUT_1" }`)
	r.add("no_config_file.dali", serialized(t, "declared"), "")
	r.add("partial", serialized(t, "declared"), partialConfig)
	r.add("split", serialized(t, "sequences"), `backend: "dali" parameters { key: "split_along_outer_axis" value { string_value: "PAIRS" } }`)
	r.add("flip", serialized(t, "flip"), `backend: "dali" parameters { key: "num_threads" value { string_value: "2" } }`)
	jpeg, file := imageFiles(t)
	r.add("jpeg_dali", jpeg, `backend: "dali" dynamic_batching { max_queue_delay_microseconds: 50000 }`)
	c := dial(t, r.serve())
	t.Run("configurations", func(t *testing.T) { t.Parallel(); completed(t, c) })
	t.Run("shapes in a batch", func(t *testing.T) { t.Parallel(); ragged(t, c) })
	t.Run("poisoned batch", func(t *testing.T) { t.Parallel(); poisoned(t, c, file) })
	t.Run("own numbers", func(t *testing.T) { t.Parallel(); ownNumbers(t, c) })
	for name, tt := range map[string]struct {
		model string
		in    []client.Tensor
		want  []client.Tensor
	}{
		"multi_input": {
			"dali_multi_input",
			[]client.Tensor{
				client.Of("DALI_X_INPUT", []int64{2, 2}, uint8(1), 2, 3, 4), client.Of("DALI_Y_INPUT", []int64{2, 2}, uint8(1), 2, 3, 4),
				client.Of("DALI_SCALAR", []int64{2, 1}, int32(1000), 2000),
			},
			[]client.Tensor{client.Of("DALI_unchanged", []int64{2, 2}, uint8(1), 2, 3, 4), client.Of("DALI_changed", []int64{2, 2}, int32(1000), 2000, 6000, 8000)},
		},
		"unbatched": {
			"model.dali",
			[]client.Tensor{client.Of("DALI_INPUT_0", []int64{2, 1}, float32(1.5), 2), client.Of("DALI_INPUT_1", []int64{2, 2}, int32(1), 2, 3, 4)},
			[]client.Tensor{client.Of("DALI_OUTPUT_0", []int64{2, 1}, float32(3), 4), client.Of("DALI_OUTPUT_1", []int64{2, 2}, float32(3), 6, 9, 12)},
		},
		"split": {
			"split",
			[]client.Tensor{client.Of("FLAT", []int64{2, 4}, int32(1), 2, 3, 4, 5, 6, 7, 8)},
			[]client.Tensor{client.Of("PAIRS", []int64{4, 2}, int32(1), 2, 3, 4, 5, 6, 7, 8)},
		},
		"layout": {
			"flip",
			[]client.Tensor{client.Of("DALI_INPUT_0", []int64{1, 1, 2, 3}, uint8(1), 2, 3, 4, 5, 6)},
			[]client.Tensor{client.Of("DALI_OUTPUT_0", []int64{1, 1, 2, 3}, uint8(4), 5, 6, 1, 2, 3)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := c.Infer(t.Context(), &client.Request{Model: tt.model, Inputs: tt.in})
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.want {
				equal(t, resp, &tt.want[i])
			}
		})
	}
}

// equal compares an output with the expected one.
func equal(t *testing.T, resp *client.Response, want *client.Tensor) {
	t.Helper()
	got := resp.Output(want.Name)
	if got == nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%s = %+v, want %+v", want.Name, got, want)
	}
}

// completed checks what is taken from pipelines into configurations.
func completed(t *testing.T, c client.Client) {
	t.Helper()
	for model, want := range map[string]struct {
		outputs []string
		batch   int32
	}{"no_config_file.dali": {[]string{"DALI_OUTPUT_0", "DALI_OUTPUT_1"}, 256}, "partial": {[]string{"RENAMED", "DALI_OUTPUT_1"}, 32}} {
		cfg, err := c.Config(t.Context(), model)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.GetMaxBatchSize() != want.batch || cfg.GetDynamicBatching() == nil || len(cfg.GetParameters()) > 0 || cfg.GetDefaultModelFilename() != "model.dali" {
			t.Errorf("%s: %v", model, cfg)
		}
		for i, in := range cfg.GetInput() {
			if in.GetName() != []string{"DALI_INPUT_0", "DALI_INPUT_1"}[i] || in.GetDataType().String() != "TYPE_FP16" || !slices.Equal(in.GetDims(), []int64{-1}) || !in.GetAllowRaggedBatch() {
				t.Errorf("%s: input %d is %v", model, i, in)
			}
		}
		for i, out := range cfg.GetOutput() {
			if out.GetName() != want.outputs[i] || out.GetDataType().String() != []string{"TYPE_FP16", "TYPE_FP32"}[i] || !slices.Equal(out.GetDims(), []int64{-1}) {
				t.Errorf("%s: output %d is %v", model, i, out)
			}
		}
	}
}

// ragged sends requests of several shapes and numbers of samples at a time. They share batches.
func ragged(t *testing.T, c client.Client) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			samples, size := int64(1+i%3), int64(1+i)
			data := make([]uint8, samples*size)
			for k := range data {
				data[k] = uint8(k + i)
			}
			resp, err := c.Infer(t.Context(), &client.Request{Model: "dali_identity", Inputs: []client.Tensor{client.Of("DALI_INPUT_0", []int64{samples, size}, data...)}})
			if err != nil {
				t.Error(err)
				return
			}
			want := client.Of("DALI_OUTPUT_0", []int64{samples, size}, data...)
			equal(t, resp, &want)
		})
	}
	wg.Wait()
}

// poisoned sends images and bytes that are none at a time: the latter fail, and nothing else does.
func poisoned(t *testing.T, c client.Client, jpeg []byte) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			data := jpeg
			switch i % 4 {
			case 1:
				data = []byte("GIF89a, and no image at all")
			case 2:
				data = jpeg[:20]
			}
			resp, err := c.Infer(t.Context(), &client.Request{Model: "jpeg_dali", Inputs: []client.Tensor{client.Of("IMAGE", []int64{1, int64(len(data))}, data...)}})
			switch bad := len(data) < len(jpeg); {
			case bad && (err == nil || !strings.Contains(err.Error(), "DALI refuses the request: CPU operator `nvidia.dali.fn.decoders.image`: ") || strings.Contains(err.Error(), ".py")):
				t.Errorf("a request without an image: %v", err)
			case !bad && (err != nil || !slices.Equal(resp.Output("PIXELS").Shape, []int64{1, 3, 32, 32})):
				t.Errorf("a request with an image: %v", err)
			}
		})
	}
	wg.Wait()
}

// ownNumbers compares the decoded, resized and normalised image with DALI's own run.
func ownNumbers(t *testing.T, c client.Client) {
	t.Helper()
	examples, err := cli.ReadExamples(filepath.Join("..", "..", "examples", "backends", "dali", "jpeg_dali"))
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	for i := range examples {
		resp, err := c.Infer(t.Context(), &examples[i].Request)
		if err != nil {
			t.Fatal(err)
		}
		if err := examples[i].Check(resp); err != nil {
			t.Error(err)
		}
	}
}

// TestRefused checks that wrong pipelines and configurations are refused by name, in the words of Triton's DALI backend where it has some, and
// that a model beside them serves.
// shows: backends.wrong
func TestRefused(t *testing.T) {
	t.Parallel()
	r := &repository{t, t.TempDir()}
	declared := serialized(t, "declared")
	whole := declared["model.dali"]
	fp16 := `input { name: "DALI_INPUT_0" data_type: TYPE_FP16 dims: -1 } input { name: "DALI_INPUT_1" data_type: TYPE_FP16 dims: -1 }`
	out := `output { name: "A" data_type: TYPE_FP16 dims: -1 } output { name: "B" data_type: TYPE_FP32 dims: -1 }`
	tests := map[string]struct {
		files  map[string]string
		config string
		want   string
	}{
		"empty":      {map[string]string{"model.dali": ""}, "", "expected a serialized pipeline: the file is empty"},
		"text":       {map[string]string{"model.dali": "not a pipeline, but some text"}, "", "expected a serialized pipeline: "},
		"truncated":  {map[string]string{"model.dali": whole[:len(whole)-7]}, "", "the file is truncated, or is no pipeline"},
		"half":       {map[string]string{"model.dali": whole[:len(whole)/2]}, "", "the file is truncated, or is no pipeline"},
		"operator":   {map[string]string{"model.dali": strings.ReplaceAll(whole, "Cast", "Kast")}, "", "DALI cannot build the pipeline: "},
		"nothing":    {map[string]string{"other.txt": ""}, "", "expected a serialized pipeline in "},
		"gpu":        {serialized(t, "mixed"), "", "the pipeline has operators on a GPU (decoders__Image '__Image"},
		"input":      {declared, `input { name: "X" data_type: TYPE_FP16 dims: -1 }`, "config for X but such input is not present in the pipeline. Its inputs, the names of its external sources, are: DALI_INPUT_0, DALI_INPUT_1"},
		"dtype":      {declared, strings.Replace(fp16, "FP16", "FP32", 1) + out, "Mismatch of data_type config for \"DALI_INPUT_0\".\nData type defined in config: TYPE_FP32\nData type defined in pipeline: TYPE_FP16"},
		"rank":       {declared, fp16 + strings.Replace(out, "dims: -1", "dims: [ 1, -1 ]", 1), "Mismatch in number of dimensions for \"A\"\nNumber of dimensions defined in config: 2\nNumber of dimensions defined in pipeline: 1"},
		"outputs":    {declared, fp16 + out + `output { name: "C" data_type: TYPE_FP32 dims: -1 }`, "do not match.\nModel config outputs: 3\nPipeline outputs: 2"},
		"undeclared": {serialized(t, "identity"), "", `Missing data_type config for "DALI_INPUT_0": add data_type to the configuration, or dtype to the external source`},
		"type":       {serialized(t, "identity"), `input { name: "DALI_INPUT_0" data_type: TYPE_STRING dims: -1 }`, "data type TYPE_STRING of input 'DALI_INPUT_0' is none of DALI's"},
		"threads":    {declared, `parameters { key: "num_threads" value { string_value: "many" } }`, "unexpected value 'many' of parameter 'num_threads'"},
		"split":      {declared, `parameters { key: "split_along_outer_axis" value { string_value: "NONE" } }`, "parameter 'split_along_outer_axis' names 'NONE', expected outputs of the model: DALI_OUTPUT_0, DALI_OUTPUT_1"},
		"decoupled":  {declared, `model_transaction_policy { decoupled: true }`, "decoupled DALI models are not supported"},
		"file name":  {declared, `default_model_filename: "test');import os"`, "contains an invalid character: '''"},
		"python":     {map[string]string{"dali.py": "import nothing_of_that_name\n"}, "", "No module named 'nothing_of_that_name'"},
		"exits":      {map[string]string{"dali.py": "import sys\nsys.exit(3)\n"}, "", "SystemExit"},
		"dies":       {map[string]string{"dali.py": "import os\nos.abort()\n"}, "", "exited: signal: aborted"},
		"no pipe":    {map[string]string{"dali.py": "x = 1\n"}, "", "expected one function with @autoserialize in the file, found 0"},
	}
	for name, tt := range tests {
		r.add(strings.ReplaceAll(name, " ", "_"), tt.files, `backend: "dali" `+tt.config)
	}
	r.add("right", declared, `backend: "dali"`)
	c, ok := dial(t, r.serve()).(client.Manager)
	if !ok {
		t.Fatal("the HTTP client has no index")
	}
	list, err := c.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]infer.Entry{}
	for _, e := range list {
		states[e.Name] = e
	}
	for name, tt := range tests {
		model := strings.ReplaceAll(name, " ", "_")
		if e := states[model]; e.State != infer.Unavailable || !strings.Contains(e.Reason, tt.want) || strings.Contains(e.Reason, "tutti-dali-") || !strings.Contains(e.Reason, model) {
			t.Errorf("%s: %+v\nwant %q", name, e, tt.want)
		}
	}
	if states["right"].State != infer.Ready {
		t.Errorf("the model beside them: %+v", states["right"])
	}
}
