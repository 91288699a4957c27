//go:build cgo

package tensorflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/tensorflow"
	"github.com/tutti-server/tutti/core/status"
)

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	param := func(key, value string) string {
		return `parameters { key: "` + key + `" value { string_value: "` + value + `" } }`
	}
	two := func(x, y string) string {
		return `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 ` + x + ` } output { name: "y" data_type: TYPE_FP32 ` + y + ` }`
	}
	for name, tc := range map[string]struct {
		model, pbtxt, want string
		code               status.Code
	}{
		"ragged":        {"ragged", "", "unsupported type of output 'words': expected a tensor, found a composite tensor", status.Unsupported},
		"rank":          {"anyrank", "", "must declare tensor 'x', whose shape the model does not say", status.InvalidArg},
		"input name":    {"two", strings.Replace(two("dims: 2", "dims: 2"), `"x"`, `"X"`, 1), "unexpected inference input 'X', allowed inputs are: x", status.InvalidArg},
		"output name":   {"two", strings.Replace(two("dims: 2", "dims: 2"), `"y"`, `"Y"`, 1), "unexpected inference output 'Y', allowed outputs are: y", status.InvalidArg},
		"input count":   {"two", two("dims: 2", "dims: 2") + `input { name: "z" data_type: TYPE_FP32 dims: 1 }`, "configuration expects 2 inputs, model provides 1", status.InvalidArg},
		"output shape":  {"two", two("dims: 2", "dims: 3"), "tensor 'y': the model expects 2 dimensions (shape [-1,2])", status.InvalidArg},
		"output type":   {"two", strings.Replace(two("dims: 2", "dims: 2"), `"y" data_type: TYPE_FP32`, `"y" data_type: TYPE_INT8`, 1), "configuration expects datatype TYPE_INT8 for output 'y', model provides TYPE_FP32", status.InvalidArg},
		"no batching":   {"fixed", "max_batch_size: 4", "model does not support batching while non-zero max_batch_size is specified", status.InvalidArg},
		"ragged input":  {"two", two("dims: 2 allow_ragged_batch: true", "dims: 2"), "tensor 'x': the ragged input has shape [-1] over the batch, but shape expected by the model is [-1,2]", status.InvalidArg},
		"batch input":   {"two", two("dims: 2", "dims: 2") + `batch_input { target_name: "n" data_type: TYPE_INT32 source_input: "x" }`, "unexpected inference input 'n', allowed inputs are: x", status.InvalidArg},
		"reshape":       {"two", two("dims: 6 reshape { shape: [3, 2] }", "dims: 2"), "tensor 'x': the model expects 2 dimensions", status.InvalidArg},
		"signature":     {"two", param("TF_SIGNATURE_DEF", "third"), "unexpected value 'third' of parameter 'TF_SIGNATURE_DEF': the model's signatures are double, half", status.InvalidArg},
		"tag":           {"two", param("TF_GRAPH_TAG", "gpu"), "gpu", status.NotFound},
		"threads":       {"two", param("TF_NUM_INTRA_THREADS", "-1"), "unexpected value '-1' of parameter 'TF_NUM_INTRA_THREADS'", status.InvalidArg},
		"share":         {"two", param("MAX_SESSION_SHARE_COUNT", "0"), "expected a number from 1", status.InvalidArg},
		"per session":   {"two", param("TF_USE_PER_SESSION_THREADS", "maybe"), "unexpected value 'maybe'", status.InvalidArg},
		"init ops":      {"two", param("TF_INIT_OPS_FILE", "init.json"), "parameter 'TF_INIT_OPS_FILE' is for a GraphDef", status.InvalidArg},
		"platform":      {"two", `platform: "tensorflow_lite"`, "unexpected platform 'tensorflow_lite'", status.InvalidArg},
		"graph":         {"two", `platform: "tensorflow_graphdef"`, "model.graphdef' for model 'two'", status.NotFound},
		"folder":        {"two", `platform: "tensorflow_graphdef" default_model_filename: "model.savedmodel"`, "expected a file at", status.InvalidArg},
		"file":          {"initialised.graphdef", `platform: "tensorflow_savedmodel" default_model_filename: "model.graphdef"`, "expected a SavedModel's folder at", status.InvalidArg},
		"accelerator":   {"two", `optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }`, "execution accelerator 'tensorrt' is not supported", status.Unsupported},
		"operators":     {"two", `model_operations { op_library_filename: "ops.so" }`, "custom operator library 'ops.so' is not supported", status.Unsupported},
		"keras by name": {"two", `default_model_filename: "net.keras"`, "is a Keras file, which only Keras reads", status.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
				t.Errorf("Load = %s error %v\nwant %s with %q", status.CodeOf(err), err, tc.code, tc.want)
			}
		})
	}
}

// TestDamaged checks the errors for models with missing parts.
func TestDamaged(t *testing.T) {
	t.Parallel()
	const ports = `input { name: "x" data_type: TYPE_FP32 dims: [-1, 2] } output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }`
	cut := func(t *testing.T, path string, keep float64) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, data[:int(float64(len(data))*keep)], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, keep := range []float64{0, 0.3, 0.9} {
		for _, file := range []string{"saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"} {
			s := settings(t, "keeper", "")
			path := filepath.Join(s.Dir, "model.savedmodel", file)
			cut(t, path, keep)
			if m, err := load(t, s); err == nil {
				t.Errorf("%s cut to %g is loaded: %+v", file, keep, m.Signature())
			} else if !strings.Contains(err.Error(), "unable to load model 'keeper' from") {
				t.Errorf("%s cut to %g: %v", file, keep, err)
			}
		}
		s := settings(t, "initialised.graphdef", ports)
		cut(t, filepath.Join(s.Dir, "model.graphdef"), keep)
		if _, err := load(t, s); err == nil {
			t.Errorf("a graph cut to %g is loaded", keep)
		}
	}
}

func TestKeras(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "net.keras"), []byte("PK"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := load(t, at(t, dir, "net", ""))
	if err == nil || !strings.Contains(err.Error(), "save it by model.export('model.savedmodel')") || status.CodeOf(err) != status.Unsupported {
		t.Errorf("error %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "libtensorflow_cc.so.2")
	if err := os.WriteFile(other, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		key, value, want string
		code             status.Code
	}{
		{"default-max-batch-size", "many", "unexpected value 'many'", status.InvalidArg},
		{"library-path", filepath.Join(t.TempDir(), "none.so"), "run 'tutti runtime fetch tensorflow'", status.Unavailable},
		{"library-path", other, "unable to open TensorFlow", status.Unavailable},
	} {
		_, err := tensorflow.NewFactory().New(backends.Options{Config: map[string]string{tc.key: tc.value}})
		if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
			t.Errorf("%s=%s: %v, want %q", tc.key, tc.value, err, tc.want)
		}
	}
}
