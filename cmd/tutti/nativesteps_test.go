package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// stepsChain is an image through native steps and a model: decode_resize, reshape, the model, softmax, top-k. MODEL is the model's backend.
var stepsChain = map[string]string{
	"pre": `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "decode_resize" } }
parameters { key: "width" value { string_value: "8" } } parameters { key: "height" value { string_value: "4" } }
parameters { key: "mean" value { string_value: "0.5" } } parameters { key: "std" value { string_value: "0.25" } }`,
	"flat": `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "tensor" } }
parameters { key: "op" value { string_value: "reshape" } } parameters { key: "dims" value { string_value: "96" } }
input { name: "INPUT" data_type: TYPE_FP32 dims: [ 3, 4, 8 ] } output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 96 ] }`,
	"model": `MODEL max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 96 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 96 ] }`,
	"soft": `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "scores" } }
input { name: "scores" data_type: TYPE_FP32 dims: [ 96 ] } output { name: "values" data_type: TYPE_FP32 dims: [ 96 ] }`,
	"top": `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "top_k" } }
parameters { key: "activation" value { string_value: "raw" } } parameters { key: "k" value { string_value: "5" } }`,
	"chain": `platform: "ensemble" max_batch_size: 8
input { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
output [ { name: "values" data_type: TYPE_FP32 dims: [ 5 ] }, { name: "indices" data_type: TYPE_INT32 dims: [ 5 ] } ]
ensemble_scheduling {
  step { model_name: "pre" model_version: -1 input_map { key: "IMAGE" value: "IMAGE" } output_map { key: "image" value: "image" } }
  step { model_name: "flat" model_version: -1 input_map { key: "INPUT" value: "image" } output_map { key: "OUTPUT" value: "flat" } }
  step { model_name: "model" model_version: -1 input_map { key: "INPUT0" value: "flat" } output_map { key: "OUTPUT0" value: "logits" } }
  step { model_name: "soft" model_version: -1 input_map { key: "scores" value: "logits" } output_map { key: "values" value: "probabilities" } }
  step { model_name: "top" model_version: -1 input_map { key: "scores" value: "probabilities" } output_map { key: "values" value: "values" } output_map { key: "indices" value: "indices" } }
}`,
}

// chainRepository writes the chain with a model of a backend.
func chainRepository(t *testing.T, model string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range stepsChain {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "MODEL", model)
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// sendImage sends an image file to a model over HTTP and returns the outputs as JSON.
func sendImage(t *testing.T, a addresses, model string, file []byte) string {
	t.Helper()
	size := strconv.Itoa(len(file) + 4)
	head := `{"inputs":[{"name":"IMAGE","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":` + size + `}}]}`
	body := append([]byte(head), byte(len(file)), byte(len(file)>>8), byte(len(file)>>16), 0)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.http+"/v2/models/"+model+"/infer", bytes.NewReader(append(body, file...)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", model, resp.StatusCode, text, err)
	}
	var answer struct{ Outputs json.RawMessage }
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return string(answer.Outputs)
}

// TestNativeStepsOnCheckingDriver sends images through an ensemble whose native steps run at the device of its model. Each request uploads its
// decoded pixels once and downloads two outputs of 5 elements, the ledger has the driver's copies, and the outputs are those of the CPU.
// A request to a step itself runs on the host.
func TestNativeStepsOnCheckingDriver(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("../../examples/ensembles/image/*.jpg")
	if len(files) < 3 {
		t.Fatalf("found %d images", len(files))
	}
	cpu := serve(t, "--cuda-driver="+noDriver, "--model-repository="+chainRepository(t, `backend: "identity"`))
	d, c, flags := newDrive(t, 2, 3)
	flags = flags[:len(flags)-1] // models of sim only
	model := `backend: "sim" parameters { key: "sim.backend" value { string_value: "identity" } } instance_group { kind: KIND_GPU gpus: 0 }`
	gpu := serveWith(t, c, append(flags, "--model-repository="+chainRepository(t, model))...)
	t.Cleanup(func() { d.check(t, metricsOf(t, gpu)) })
	for _, path := range files {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before := d.Count()
		up, down := d.traffic.Up.Load(), d.traffic.Down.Load()
		if got, want := sendImage(t, gpu, "chain", file), sendImage(t, cpu, "chain", file); got != want {
			t.Errorf("%s: at the device\n%s\non the host\n%s", path, got, want)
		}
		after := d.Count()
		ups, downs := after.Up-before.Up-uint64(d.traffic.Up.Load()-up), after.Down-before.Down-uint64(d.traffic.Down.Load()-down)
		if path != files[0] && ups != 1 || ups > 2 || downs != 2 { // the first one also uploads the table of the normalisation
			t.Errorf("%s: %d copies to the device and %d from it", path, ups, downs)
		}
		if got, want := sendImage(t, gpu, "pre", file), sendImage(t, cpu, "pre", file); got != want {
			t.Errorf("%s: decode_resize differs", path)
		}
		if last := d.Count(); last.Up != after.Up || last.Down != after.Down {
			t.Errorf("%s: a request to a step itself used the device", path)
		}
	}
}
