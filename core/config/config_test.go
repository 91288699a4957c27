package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
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
			name:   "required left out",
			config: `name: "m" input { name: "TEXT_PAIR" data_type: TYPE_STRING dims: 1 }`,
			err:    "unable to load model 'm', configuration expects 1 inputs, model provides 2: input 'TEXT' is missing",
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
	tests := []struct {
		file string
		want []string
		err  string
	}{
		{file: "labels.txt", want: []string{"zero", "one hundred", "", "three"}},
		{file: "./labels.txt", want: []string{"zero", "one hundred", "", "three"}},
		{file: "none.txt", err: "label file 'none.txt' for output 'o' in model 'm' cannot be read: "},
		{file: "link.txt", err: "label file 'link.txt' for output 'o' in model 'm' cannot be read: "},
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
