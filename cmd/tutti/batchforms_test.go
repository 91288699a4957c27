package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// modelsDir holds small ONNX models and the script that generated them.
const modelsDir = "../../backends/onnx/testdata"

// models writes a repository of configurations by name. A first line "# FILE" names the ONNX file of the model.
func models(t *testing.T, configs map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range configs {
		dir := filepath.Join(root, name, "1")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, ok := strings.CutPrefix(strings.SplitN(text, "\n", 2)[0], "# ")
		if !ok {
			continue
		}
		data, err := os.ReadFile(filepath.Join(modelsDir, file+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.onnx"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const raggedPorts = `
backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "ends" data_type: TYPE_INT32 source_input: "x" }
batch_input { kind: BATCH_MAX_ELEMENT_COUNT_AS_SHAPE target_name: "longest" data_type: TYPE_FP32 source_input: "x" }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
output { name: "sum" data_type: TYPE_FP32 dims: 1 reshape {} }
output { name: "width" data_type: TYPE_INT64 dims: 1 reshape {} }
batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }
`

// three configures batches of exactly three requests, which execute as soon as three are queued.
const three = "dynamic_batching { preferred_batch_size: 3 max_queue_delay_microseconds: 60000000 }\n"

// formModels returns the configurations of TestBatchForms.
func formModels() map[string]string {
	return map[string]string{
		"ragged": "# ragged" + raggedPorts + three,
		"alone":  "# ragged" + raggedPorts,
		"densenet_onnx": `# image
platform: "onnxruntime_onnx" max_batch_size: 0
input { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ] reshape { shape: [ 1, 3, 224, 224 ] } }
output { name: "fc6_1" data_type: TYPE_FP32 dims: 1000 reshape { shape: [ 1, 1000, 1, 1 ] } }
`,
		"classify": `platform: "ensemble"
input { name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
output { name: "CLASSES" data_type: TYPE_FP32 dims: 1000 }
ensemble_scheduling { step { model_name: "densenet_onnx" model_version: -1
  input_map { key: "data_0" value: "IMAGE" } output_map { key: "fc6_1" value: "CLASSES" } } }
`,
		"peak": `# peak
backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
dynamic_batching {}
`,
		"padded": `# peak
backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
parameters { key: "pad.x" value { string_value: "0" } }
parameters { key: "unpad.y" value { string_value: "x" } }
dynamic_batching {}
`,
		"counts": `backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_STRING dims: [ -1, 2 ] allow_ragged_batch: true }
batch_input { kind: BATCH_ELEMENT_COUNT target_name: "INPUT1" data_type: TYPE_FP32 source_input: "INPUT0" }
batch_input { kind: BATCH_ITEM_SHAPE target_name: "INPUT2" data_type: TYPE_INT32 source_input: "INPUT0" }
output { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1, 2 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 1 reshape {} }
output { name: "OUTPUT2" data_type: TYPE_INT32 dims: -1 }
batch_output { target_name: "OUTPUT0" source_input: "INPUT0" }
` + three,
	}
}

// TestBatchForms checks models whose batches are more than concatenated rows: ragged inputs, batch inputs and
// outputs, padding and reshape.
// shows: config.ragged config.reshape
func TestBatchForms(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+models(t, formModels()), "--backend-config", "onnxruntime,library-path="+requireRuntime(t))
	for _, url := range []string{"http://" + a.http, "grpc://" + a.grpc} {
		c, err := client.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		f := batchForms{c} // one protocol after the other, for batches of three must not mix
		for _, check := range []func(*testing.T){f.ragged, f.alone, f.counts, f.reshape, f.empty, f.metadata} {
			check(t)
		}
	}
	c, err := client.Dial("http://" + a.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	expectOutput(t, batchForms{c}.infer(t, "padded", client.Of("x", []int64{1, 3}, float32(1), 2, 3)), "y", []int64{1, 3}, float32(0), 0, 0)
	padding(t, a)
}

// batchForms sends the requests of TestBatchForms over one protocol.
type batchForms struct{ c client.Client }

func (f batchForms) infer(t *testing.T, model string, in client.Tensor) *client.Response {
	t.Helper()
	resp, err := f.c.Infer(t.Context(), &client.Request{Model: model, Inputs: []client.Tensor{in}})
	if err != nil {
		t.Errorf("model %s: %v", model, err)
		return &client.Response{}
	}
	return resp
}

// together sends all inputs at the same time, one per request.
func (f batchForms) together(t *testing.T, model string, in ...client.Tensor) []*client.Response {
	t.Helper()
	out := make([]*client.Response, len(in))
	var wg sync.WaitGroup
	for i := range in {
		wg.Go(func() { out[i] = f.infer(t, model, in[i]) })
	}
	wg.Wait()
	return out
}

func expectOutput[T client.Number](t *testing.T, resp *client.Response, name string, shape []int64, want ...T) {
	t.Helper()
	out := resp.Output(name)
	got, err := client.Values[T](out)
	if err != nil || !slices.Equal(out.Shape, shape) || !slices.Equal(got, want) {
		t.Errorf("output %s is %+v (%v), want %v %v", name, out, err, shape, want)
	}
}

func (f batchForms) ragged(t *testing.T) {
	t.Helper()
	resp := f.together(t, "ragged",
		client.Of("x", []int64{1, 3}, float32(1), 2, 3), client.Of("x", []int64{1, 1}, float32(4)), client.Of("x", []int64{1, 4}, float32(5), 6, 7, 8))
	expectOutput(t, resp[0], "y", []int64{1, 3}, float32(2), 4, 6)
	expectOutput(t, resp[1], "y", []int64{1, 1}, float32(8))
	expectOutput(t, resp[2], "y", []int64{1, 4}, float32(10), 12, 14, 16)
	for i, sum := range []float32{6, 4, 26} {
		expectOutput(t, resp[i], "sum", []int64{1, 1}, sum)
		expectOutput(t, resp[i], "width", []int64{1, 1}, int64(4))
	}
}

func (f batchForms) alone(t *testing.T) {
	t.Helper()
	resp := f.infer(t, "alone", client.Of("x", []int64{1, 3}, float32(1), 2, 3))
	expectOutput(t, resp, "y", []int64{1, 3}, float32(2), 4, 6)
	expectOutput(t, resp, "sum", []int64{1, 1}, float32(6))
	expectOutput(t, resp, "width", []int64{1, 1}, int64(3))
	expectOutput(t, f.infer(t, "alone", client.Of[float32]("x", []int64{1, 0})), "sum", []int64{1, 1}, float32(0))
}

func (f batchForms) counts(t *testing.T) {
	t.Helper()
	resp := f.together(t, "counts",
		client.Text("INPUT0", []int64{1, 1, 2}, "a", ""), client.Text[string]("INPUT0", []int64{1, 0, 2}), client.Text("INPUT0", []int64{1, 2, 2}, "b", "", "cc", "d"))
	for i, want := range [][]string{{"a", ""}, {}, {"b", "", "cc", "d"}} {
		got, err := resp[i].Output("OUTPUT0").Strings()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("strings %q (%v), want %q", got, err, want)
		}
		n := int32(len(want) / 2)
		expectOutput(t, resp[i], "OUTPUT1", []int64{1, 1}, float32(len(want)))
		expectOutput(t, resp[i], "OUTPUT2", []int64{1, 2}, n, 2)
	}
}

func (f batchForms) reshape(t *testing.T) {
	t.Helper()
	image := make([]float32, 3*224*224)
	image[7], image[len(image)-1] = 1, 3
	want := make([]float32, 1000)
	for i := range want {
		want[i] = 4 * (float32(i) / 1000)
	}
	expectOutput(t, f.infer(t, "densenet_onnx", client.Of("data_0", []int64{3, 224, 224}, image...)), "fc6_1", []int64{1000}, want...)
	expectOutput(t, f.infer(t, "classify", client.Of("IMAGE", []int64{3, 224, 224}, image...)), "CLASSES", []int64{1000}, want...)
	_, err := f.c.Infer(t.Context(), &client.Request{Model: "densenet_onnx", Inputs: []client.Tensor{client.Of("data_0", []int64{1, 3, 224, 224}, image...)}})
	if err == nil || !strings.Contains(err.Error(), "unexpected shape for input 'data_0' for model 'densenet_onnx'. Expected [3,224,224], got [1,3,224,224].") {
		t.Errorf("an input of the model's shape gives %v", err)
	}
}

// empty checks requests with no elements in a row: for a model that fails on them by itself, for the padded one,
// and for the ragged one.
func (f batchForms) empty(t *testing.T) {
	t.Helper()
	none := client.Of[float32]("x", []int64{0, 2})
	expectOutput[float32](t, f.infer(t, "padded", none), "y", []int64{0, 2})
	expectOutput[float32](t, f.infer(t, "alone", none), "y", []int64{0, 2})
	expectOutput[float32](t, f.infer(t, "peak", none), "y", []int64{0, 2})
	expectOutput(t, f.infer(t, "peak", client.Of("x", []int64{2, 2}, float32(1), 2, 3, 4)), "y", []int64{2, 2}, float32(2), 2, 0, 0)
}

func (f batchForms) metadata(t *testing.T) {
	t.Helper()
	md, err := f.c.Metadata(t.Context(), "ragged")
	if err != nil || len(md.Inputs) != 1 || md.Inputs[0].Name != "x" || !slices.Equal(md.Inputs[0].Shape, []int64{-1, -1}) {
		t.Errorf("metadata %+v (%v), want the input x alone", md, err)
	}
	ends := client.Of("ends", []int64{2}, int32(0), 1)
	_, err = f.c.Infer(t.Context(), &client.Request{Model: "alone", Inputs: []client.Tensor{client.Of("x", []int64{1, 1}, float32(1)), ends}})
	if err == nil || !strings.Contains(err.Error(), "unexpected inference input 'ends' for model 'alone'") {
		t.Errorf("a request with a computed input gives %v", err)
	}
}

// padding checks the metric of padded elements.
func padding(t *testing.T, a addresses) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	const want = `ensemble_batch_elements_total{model="padded",version="1"} 3` + "\n"
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("metrics (%v) lack %s", err, want)
	}
}
