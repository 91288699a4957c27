package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const examplesDir = "examples/ensembles"

// repository is the folder of models that the server loads, and the examples with their right responses.
type repository struct {
	dir      string
	touched  int      // changes so far
	models   []string // all of them, the steps of ensembles before these
	examples map[string][]stored
	bucket   string // the address of the bucket's models, or empty
	isolated bool   // models run in child processes of the server
}

// own are the models without files. Their backends answer what flows.go computes.
var own = map[string]string{
	"plain": `backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
dynamic_batching { max_queue_delay_microseconds: 200 } instance_group { count: 2 kind: KIND_CPU }
`,
	"cached": `backend: "identity" max_batch_size: 8 response_cache { enable: true }
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
`,
	"squares": `backend: "square" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
`,
	"flood": `backend: "square" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
`,
	"sum": `backend: "sequence" max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
instance_group { count: 8 kind: KIND_CPU }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
}
`,
	"count": `backend: "python" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
`,
}

// counting is the model.py of count: n responses, 0 to n-1.
const counting = `import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            n = int(request.inputs()[0].as_numpy()[0])
            for i in range(n):
                out = pb_utils.Tensor("OUT", numpy.array([i], numpy.int32))
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// isolated are the models of the examples that run in child processes of the server, with a process for each instance.
var isolated = []string{"scale_shift", "image_cnn"}

// isolation is what their configurations are given.
const isolation = `
parameters { key: "isolation" value { string_value: "process" } }
`

// makeRepository copies the examples that are there, and writes the models without files.
func makeRepository(dir string) (*repository, error) {
	r := &repository{dir: dir, examples: map[string][]stored{}}
	for _, name := range []string{"parallel", "image", "text", "python_chain"} {
		from := filepath.Join(examplesDir, name)
		if _, err := os.Stat(filepath.Join(from, "minilm/1/model.onnx")); name == "text" && err != nil {
			logf("the text ensemble is left out: make examples fetches its model")
			continue
		}
		list, err := readStored(from)
		if err != nil {
			return nil, err
		}
		r.examples[name] = list
		if err := r.copy(from); err != nil {
			return nil, err
		}
	}
	for name, text := range own {
		if err := r.write(name, text); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "count/1/model.py"), []byte(counting), 0o600); err != nil {
		return nil, err
	}
	slices.Sort(r.models)
	return r, nil
}

// copy copies the models of a repository of examples.
func (r *repository) copy(from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := os.CopyFS(filepath.Join(r.dir, e.Name()), os.DirFS(filepath.Join(from, e.Name()))); err != nil {
			return err
		}
		// Git has no empty folders: ensembles have no version without it.
		if err := os.MkdirAll(filepath.Join(r.dir, e.Name(), "1"), 0o755); err != nil { //nolint:gosec // models are no secrets
			return err
		}
		if slices.Contains(isolated, e.Name()) {
			if err := r.isolate(e.Name()); err != nil {
				return err
			}
		}
		r.models = append(r.models, e.Name())
	}
	return nil
}

// isolate has a model run in processes of its own.
func (r *repository) isolate(model string) error {
	text, err := os.ReadFile(r.config(model))
	if err != nil {
		return err
	}
	r.isolated = true
	return os.WriteFile(r.config(model), append(text, isolation...), 0o600)
}

// write writes a model of one version.
func (r *repository) write(name, text string) error {
	if err := os.MkdirAll(filepath.Join(r.dir, name, "1"), 0o755); err != nil { //nolint:gosec // models are no secrets
		return err
	}
	r.models = append(r.models, name)
	return os.WriteFile(r.config(name), []byte(text), 0o600)
}

func (r *repository) config(model string) string { return filepath.Join(r.dir, model, "config.pbtxt") }

// touch changes how many versions of a model are loaded, of which there is one, so that the model is loaded anew: one without a change would stay as it is.
func (r *repository) touch(model string) error {
	text, err := os.ReadFile(r.config(model))
	if err != nil {
		return err
	}
	text, _, _ = bytes.Cut(text, []byte(stamp))
	r.touched++
	return os.WriteFile(r.config(model), fmt.Appendf(text, "%s %d } }\n", stamp, r.touched), 0o600)
}

// stamp begins the change.
const stamp = "\nversion_policy { latest { num_versions:"

// far is the model of the bucket.
const far = "far"

// push writes the model far to a bucket.
func (r *repository) push(ctx context.Context, tutti, scratch, bucket string) error {
	dir := filepath.Join(scratch, far)
	if err := os.MkdirAll(filepath.Join(dir, "1"), 0o755); err != nil { //nolint:gosec // models are no secrets
		return err
	}
	text := strings.Replace(own["plain"], "dynamic_batching", "version_policy { latest { num_versions: 1 } } dynamic_batching", 1)
	err := errors.Join(os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "1", "data"), []byte("one"), 0o600))
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, tutti, "repo", "push", dir, bucket).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot push the model to the bucket: %w: %s", err, out)
	}
	r.bucket = bucket
	r.models = append(r.models, far)
	return nil
}
