package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func parse(t *testing.T, text string) *modelconfig.ModelConfig {
	t.Helper()
	cfg, err := config.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

func optional(p config.Port) config.Port {
	p.Optional = true
	return p
}

var tokenizer = &config.Signature{
	Model: "tok", Version: 3,
	Inputs:  []config.Port{port("TEXT", tensor.Bytes, 1), optional(port("TEXT_PAIR", tensor.Bytes, 1))},
	Outputs: []config.Port{port("input_ids", tensor.Int64, -1), port("attention_mask", tensor.Int64, -1)},
}

func TestAgree(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		want         []config.Port // the inputs
		err          string
	}{
		{name: "nothing declared", config: `name: "m"`, want: tokenizer.Inputs},
		{
			name: "order and optional", want: []config.Port{port("TEXT", tensor.Bytes, 1), port("TEXT_PAIR", tensor.Bytes, 1)},
			config: `name: "m" input { name: "TEXT_PAIR" data_type: TYPE_STRING dims: -1 } input { name: "TEXT" data_type: TYPE_STRING dims: 1 }`,
		},
		{
			name: "optional left out", want: tokenizer.Inputs,
			config: `name: "m" input { name: "TEXT" data_type: TYPE_STRING dims: 1 }`,
		},
		{
			name: "required left out", want: []config.Port{port("TEXT", tensor.Bytes, 1), port("TEXT_PAIR", tensor.Bytes, 1)},
			config: `name: "m" input { name: "TEXT_PAIR" data_type: TYPE_STRING dims: 1 }`,
		},
		{
			name: "type and dims left out", want: tokenizer.Inputs,
			config: `name: "m" input { name: "TEXT" } input { name: "TEXT_PAIR" dims: 1 optional: true }`,
		},
		{
			name:   "unknown",
			config: `name: "m" input { name: "text" data_type: TYPE_STRING dims: 1 }`,
			err:    "unable to load model 'm', unexpected inference input 'text', allowed inputs are: TEXT, TEXT_PAIR",
		},
		{
			name:   "unknown output",
			config: `name: "m" output { name: "ids" data_type: TYPE_INT64 dims: -1 }`,
			err:    "unable to load model 'm', unexpected inference output 'ids', allowed outputs are: input_ids, attention_mask",
		},
		{
			name:   "data type",
			config: `name: "m" output { name: "input_ids" data_type: TYPE_INT32 dims: -1 }`,
			err:    "unable to load model 'm', unexpected datatype TYPE_INT32 for inference output 'input_ids', expecting TYPE_INT64",
		},
		{
			name:   "required as optional",
			config: `name: "m" input { name: "TEXT" data_type: TYPE_STRING dims: 1 optional: true }`,
			err:    "unable to load model 'm', input 'TEXT' is configured as optional, but the model requires it",
		},
		{
			name:   "rank",
			config: `name: "m" max_batch_size: 4 output { name: "input_ids" data_type: TYPE_INT64 dims: [ -1, 2 ] }`,
			err: "model 'm', tensor 'input_ids': the model expects 2 dimensions (shape [-1,-1]) but the model configuration specifies 3 dimensions " +
				"(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,-1,2])",
		},
		{
			name:   "extent",
			config: `name: "m" input { name: "TEXT" data_type: TYPE_STRING dims: 2 }`,
			err:    "model 'm', tensor 'TEXT': the model expects 1 dimensions (shape [1]) but the model configuration specifies 1 dimensions (shape [2])",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Agree(parse(t, tt.config), tokenizer)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || status.CodeOf(err) != status.InvalidArg {
					t.Fatalf("error\n got %v\nwant %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Inputs); diff != "" {
				t.Errorf("inputs (-want +got):\n%s", diff)
			}
			if got.Model != "m" || got.Version != 3 {
				t.Errorf("model %s version %d, want m version 3", got.Model, got.Version)
			}
		})
	}
}

func TestAgreeNarrows(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `name: "m" max_batch_size: 8 output { name: "attention_mask" data_type: TYPE_INT64 dims: 128 }`)
	got, err := config.Agree(cfg, tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Outputs[1].Dims; !d.Equal(tensor.Of(128)) {
		t.Errorf("dims %s, want [128]", d)
	}
	if d := tokenizer.Outputs[1].Dims; !d.Equal(tensor.Of(-1)) {
		t.Errorf("the model's own dims became %s", d)
	}
	if got.MaxBatch != 8 || len(got.Outputs) != 2 {
		t.Errorf("max batch %d with %d outputs, want 8 with 2", got.MaxBatch, len(got.Outputs))
	}
}

// shows: config.complete
func TestComplete(t *testing.T) {
	t.Parallel()
	given := parse(t, `name: "m" output { name: "input_ids" data_type: TYPE_INT64 dims: 4 }`)
	before := proto.CloneOf(given)
	got := config.Complete(given, tokenizer)
	want := parse(t, `name: "m"
		input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
		input { name: "TEXT_PAIR" data_type: TYPE_STRING dims: 1 optional: true }
		output { name: "input_ids" data_type: TYPE_INT64 dims: 4 }`)
	if !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if !proto.Equal(given, before) {
		t.Error("the given configuration was changed")
	}
	sig := config.SignatureOf(got)
	if diff := cmp.Diff(tokenizer.Inputs, sig.Inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
}

func TestNormaliseTwice(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`backend: "onnxruntime" max_batch_size: 4 dynamic_batching {}`,
		`platform: "ensemble" ensemble_scheduling {}`,
	} {
		once := parse(t, text)
		if err := config.Normalise(once, "m"); err != nil {
			t.Fatal(err)
		}
		twice := proto.CloneOf(once)
		if err := config.Normalise(twice, "m"); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(once, twice) {
			t.Errorf("%s: the second time changed it to %v", text, twice)
		}
	}
}

// TestReadLabels checks the parsing of label files.
// shows: config.labels
func TestReadLabels(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret.txt")
	dir := t.TempDir()
	write(t, outside, "secret\n")
	write(t, filepath.Join(dir, "labels.txt"), "zero\r\none hundred \n\nthree")
	if err := os.Symlink(outside, filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop.txt", filepath.Join(dir, "loop.txt")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		file string
		want []string
		err  string
	}{
		{file: "labels.txt", want: []string{"zero", "one hundred", "", "three"}},
		{file: "./labels.txt", want: []string{"zero", "one hundred", "", "three"}},
		{file: "none.txt", err: "label file 'none.txt' for output 'o' in model 'm' cannot be read: "},
		{file: "link.txt", want: []string{"secret"}},
		{file: "loop.txt", err: "label file 'loop.txt' for output 'o' in model 'm' cannot be read: "},
		{file: "../x", err: "label file '../x' for output 'o' in model 'm' cannot be read: "},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			sig := &config.Signature{Outputs: []config.Port{port("p", tensor.FP32, 4), port("o", tensor.FP32, 4)}}
			err := config.ReadLabels(parse(t, `name: "m" output { name: "o" label_filename: "`+tt.file+`" } output { name: "p" }`), dir, sig)
			if (err != nil) != (tt.err != "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, sig.Outputs[1].Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadFaults checks the errors of files that cannot be read or parsed.
func TestReadFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, code, reason string
		make               func(t *testing.T, path string)
	}{
		{"missing", "TUT1010", "failed to open text file for read PATH: file does not exist", func(*testing.T, string) {}},
		{"folder", "TUT1008", "failed to open text file for read PATH: expected a file, found drwx------", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"huge", "TUT1007", "failed to read text proto from PATH: 104857600 bytes, expected at most 4194304", func(t *testing.T, path string) {
			t.Helper()
			write(t, path, "")
			if err := os.Truncate(path, 100<<20); err != nil {
				t.Fatal(err)
			}
		}},
		{"loop", "TUT1008", "failed to open text file for read PATH: stat PATH: too many levels of symbolic links", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Symlink(path, path); err != nil {
				t.Fatal(err)
			}
		}},
		{"unreadable", "TUT1008", "failed to open text file for read PATH: open PATH: permission denied", func(t *testing.T, path string) {
			t.Helper()
			if os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			write(t, path, "")
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"truncated", "TUT1001", "failed to read text proto from PATH: Error parsing text-format inference.ModelConfig: 2:42: missing field separator :", func(t *testing.T, path string) {
			t.Helper()
			write(t, path, "backend: \"identity\"\ninput [ { name: \"A\" data_type: TYPE_FP32 dims")
		}},
		{"zeros", "TUT1001", "failed to read text proto from PATH: Error parsing text-format inference.ModelConfig: 1:1: invalid field name: \uFFFD", func(t *testing.T, path string) {
			t.Helper()
			write(t, path, strings.Repeat("\x00", 4096))
		}},
		{"empty", "TUT2003", "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. " +
			"Expected model name of the form 'model.<backend_name>'.", func(t *testing.T, path string) {
			t.Helper()
			write(t, path, "")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, config.FileName)
			tt.make(t, path)
			_, list := config.Read(config.Source{Dir: dir, Name: "m"}, nil)
			if len(list) != 1 || string(list[0].Code) != tt.code || list[0].Reason != strings.ReplaceAll(tt.reason, "PATH", path) {
				t.Errorf("got %v, want %s: %s", list, tt.code, tt.reason)
			}
		})
	}
}

// TestManyProblems checks that the number of reported problems is bounded.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	list := config.Inspect(parse(t, `name: "m" backend: "pytorch" instance_group {} `+strings.Repeat("input { name: 'a__0' } ", 20000)))
	if len(list) > 300 || !config.HasFault(list) {
		t.Errorf("%d diagnostics", len(list))
	}
}

func TestNoName(t *testing.T) {
	t.Parallel()
	list := config.Inspect(parse(t, `backend: "identity" instance_group {}`))
	if len(list) != 1 || list[0].Code != "TUT2001" || list[0].Reason != "model configuration must specify 'name'" {
		t.Errorf("got %v", list)
	}
}

// TestDeduce checks the backend of configurations that name none.
func TestDeduce(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, text, backend, defaultFile string }{
		{"m", "1/model.onnx", "", "onnxruntime", ""},
		{"m", "3/model.plan", "max_batch_size: 2", "tensorrt", ""},
		{"m", "1/other.pt", `default_model_filename: "other.pt"`, "pytorch", "other.pt"},
		{"m.identity", "1/x", "", "identity", "model.identity"},
		{"m.identity", "1/y", `default_model_filename: "y"`, "identity", "y"},
		{"m.onnxruntime", "1/z", "", "onnxruntime", ""},
		{"m", "01/model.onnx", "", "", ""},
		{"m", "1/model.onnx", `backend: "identity"`, "identity", ""},
		{"m", "1/xgboost.ubj", "", "fil", ""},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(tt.file)), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, tt.file), "")
			cfg := parse(t, tt.text)
			if config.Deduce(cfg, dir, tt.name); cfg.GetBackend() != tt.backend {
				t.Errorf("backend %q, want %q", cfg.GetBackend(), tt.backend)
			}
			if f := cfg.GetDefaultModelFilename(); f != tt.defaultFile {
				t.Errorf("default_model_filename %q, want %q", f, tt.defaultFile)
			}
		})
	}
}

// TestBackends checks that every backend of Triton is recognised by its platform, by its file in the highest
// version and by the name of the model's folder, and that the error suggests a replacement.
func TestBackends(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ backend, platform, file, instead string }{
		{"onnxruntime", "onnxruntime_onnx", "model.onnx", ""},
		{"tensorrt", "tensorrt_plan", "model.plan", "onnxruntime"},
		{"pytorch", "pytorch_libtorch", "model.pt", ""},
		{"torch_aoti", "", "model.pt2", ""},
		{"openvino", "", "model.xml", ""},
		{"python", "", "model.py", ""},
		{"dali", "", "model.dali", "not built in"},
		{"tensorflow", "tensorflow_savedmodel", "model.savedmodel", ""},
		{"tensorflow", "tensorflow_graphdef", "model.graphdef", ""},
		{"fil", "", "xgboost.model", ""},
		{"own", "", "", ""},
	} {
		t.Run(tt.backend+tt.file, func(t *testing.T) {
			t.Parallel()
			settled := func(cfg *modelconfig.ModelConfig) {
				t.Helper()
				if err := config.Normalise(cfg, cfg.GetName()); err != nil {
					t.Fatal(err)
				}
				if cfg.GetBackend() != tt.backend || tt.file != "" && cfg.GetDefaultModelFilename() != tt.file {
					t.Errorf("backend %q with file %q, want %q with %q", cfg.GetBackend(), cfg.GetDefaultModelFilename(), tt.backend, tt.file)
				}
			}
			if tt.platform != "" {
				settled(parse(t, `name: "m" platform: "`+tt.platform+`"`))
			}
			dir := t.TempDir()
			if tt.file != "" {
				for _, sub := range []string{"2", "10"} {
					if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				write(t, filepath.Join(dir, "10", tt.file), "")
				cfg := parse(t, `name: "m"`)
				config.Deduce(cfg, dir, "m")
				settled(cfg)
			}
			if tt.backend != "tensorflow" { // its name does not imply a model format
				cfg := parse(t, `name: "m.`+tt.backend+`"`)
				config.Deduce(cfg, t.TempDir(), cfg.GetName())
				settled(cfg)
			}
			err := config.UnknownBackend("m", tt.backend, "backend", []string{"identity", "onnxruntime"})
			if want := "unable to find backend library for backend '" + tt.backend + "', try specifying runtime on the model configuration. Model 'm' needs backend '" + tt.backend + "', which is not built in"; !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tt.instead) {
				t.Errorf("got %q", err)
			}
		})
	}
}

// TestForestFile checks the default file of a forest by its format, and the format by the file.
func TestForestFile(t *testing.T) {
	t.Parallel()
	for format, file := range map[string]string{
		"": "xgboost.model", "xgboost": "xgboost.model", "xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj", "lightgbm": "model.txt", "treelite_checkpoint": "checkpoint.tl",
	} {
		cfg := parse(t, `name: "m" backend: "fil" parameters { key: "model_type" value { string_value: "`+format+`" } }`)
		if err := config.Normalise(cfg, "m"); err != nil || cfg.GetDefaultModelFilename() != file {
			t.Errorf("model_type %q: default_model_filename %q, want %q, %v", format, cfg.GetDefaultModelFilename(), file, err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "1", "checkpoint.tl"), "")
	cfg := parse(t, `name: "m"`)
	if config.Deduce(cfg, dir, "m"); cfg.GetParameters()["model_type"].GetStringValue() != "treelite_checkpoint" {
		t.Errorf("Deduce sets %v", cfg)
	}
}

// TestConfigName checks that an existing named configuration is preferred.
func TestConfigName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "configs"), 0o700); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(dir, "configs", "large.pbtxt")
	write(t, named, "")
	usual := filepath.Join(dir, config.FileName)
	for name, want := range map[string]string{"large": named, "small": usual, "": usual, "../configs/large": usual} {
		if got := config.PathOf(dir, name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestDiagnosed(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outer: %w", config.Errorf(config.PortDims, "input[0].dims", "no dims in '%s'", "m"))
	d, ok := config.Diagnosed(err)
	if !ok || d.Code != config.PortDims || d.Field != "input[0].dims" || status.CodeOf(err) != status.InvalidArg {
		t.Errorf("got %+v, %v", d, ok)
	}
	if _, ok := config.Diagnosed(os.ErrNotExist); ok {
		t.Error("a plain error has a diagnostic")
	}
	list := config.Strict([]config.Diagnostic{{Code: config.NoModelVersion, Severity: config.Notice}, {Code: config.Hint, Severity: config.Notice}})
	if list[0].Severity != config.Fault || list[1].Severity != config.Notice {
		t.Errorf("strict gives %v", list)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, config.FileName)
	if _, err := config.Load(dir); !errors.Is(err, fs.ErrNotExist) || status.CodeOf(err) != status.NotFound {
		t.Errorf("no file: %v", err)
	}
	write(t, path, "# a comment\nname: \"m\"\n")
	cfg, err := config.Load(dir)
	if err != nil || cfg.GetName() != "m" {
		t.Errorf("name %q, error %v", cfg.GetName(), err)
	}
	write(t, path, strings.Repeat("#", config.MaxFileSize+1))
	want := "failed to read text proto from " + path + ": 4194305 bytes, expected at most 4194304"
	if _, err := config.Load(dir); err == nil || err.Error() != want {
		t.Errorf("too large: %v, want %s", err, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
