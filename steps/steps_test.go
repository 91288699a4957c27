package steps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestResolve(t *testing.T) {
	t.Parallel()
	scale := steps.Factory{Name: "scale", Params: []steps.Param{
		{Key: "file", Doc: "the file of factors", Required: true},
		{Key: "mode", Doc: "the mode", Default: "fast", Values: []string{"fast", "exact"}},
		{Key: "top", Doc: "how many"},
	}}
	bare := steps.Factory{Name: "bare"}
	tests := []struct {
		name  string
		step  *steps.Factory
		given map[string]string
		want  map[string]string
		err   string
	}{
		{"defaults", &scale, map[string]string{"file": "f"}, map[string]string{"file": "f", "mode": "fast", "top": ""}, ""},
		{
			"all", &scale,
			map[string]string{"file": "f", "mode": "exact", "top": "3", "step": "scale"},
			map[string]string{"file": "f", "mode": "exact", "top": "3"},
			"",
		},
		{"nothing", &bare, nil, map[string]string{}, ""},
		{"only the step", &bare, map[string]string{"step": "bare"}, map[string]string{}, ""},
		{"missing", &scale, map[string]string{"mode": "fast"}, nil, "step 'scale' needs parameter 'file': the file of factors"},
		{
			"value", &scale,
			map[string]string{"file": "f", "mode": "slow"},
			nil,
			"parameter 'mode' of step 'scale' is 'slow', expected one of fast, exact",
		},
		{
			"empty value", &scale,
			map[string]string{"file": "f", "mode": ""},
			nil,
			"parameter 'mode' of step 'scale' is '', expected one of fast, exact",
		},
		{
			"unknown, the first by name", &scale,
			map[string]string{"file": "f", "z": "1", "MODE": "fast"},
			nil,
			`unknown parameter 'MODE' of step 'scale', expected one of: file, mode, top. Did you mean "mode"?`,
		},
		{"unknown where none is known", &bare, map[string]string{"x": ""}, nil, "unknown parameter 'x' of step 'bare', which has none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.step.Resolve(tt.given)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if errText(err) != tt.err {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r, err := steps.NewRegistry(steps.Factory{Name: "b", Doc: "B"}, steps.Factory{Name: "a", Doc: "A"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, r.Names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.ByName("a").Doc != "A" || r.ByName("b").Doc != "B" || r.ByName("c") != nil || r.ByName("") != nil {
		t.Error("a name finds another step")
	}
	if _, err := steps.NewRegistry(steps.Factory{Name: "a"}, steps.Factory{Name: "a"}); errText(err) != "step 'a' is listed twice" {
		t.Errorf("error %v", err)
	}
}

// TestFind looks for files in a repository with a file beside the model's folder, which nobody may reach.
func TestFind(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	model := filepath.Join(root, "m")
	version := filepath.Join(model, "1")
	for _, dir := range []string{filepath.Join(version, "sub"), filepath.Join(version, "both"), filepath.Join(model, "folder")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"secret", "m/model.txt", "m/two.txt", "m/both", "m/1/two.txt", "m/1/sub/deep.txt"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &steps.Settings{Model: "m", ModelDir: model, Dir: version}
	outside := func(name string) string { return "file '" + name + "' of model 'm' is outside the model folder" }
	missing := func(name string) string {
		return "file '" + name + "' of model 'm' is neither in '" + version + "' nor in '" + model + "'"
	}
	odd := func(name, path string) string {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return "file '" + name + "' of model 'm': expected a file at '" + path + "', found " + info.Mode().String()
	}
	tests := []struct{ name, want, err string }{
		{"two.txt", "m/1/two.txt", ""},
		{"model.txt", "m/model.txt", ""},
		{"sub/deep.txt", "m/1/sub/deep.txt", ""},
		{"sub/../two.txt", "m/1/two.txt", ""},
		{"both", "m/both", ""}, // a folder in the version, a file in the model
		{"folder", "", odd("folder", filepath.Join(model, "folder"))},
		{".", "", odd(".", model)},
		{"nothing", "", missing("nothing")},
		{"tvo.txt", "", missing("tvo.txt") + `. Did you mean "two.txt"?`},
		{"two.txt\x00", "", missing("two.txt\x00") + `. Did you mean "two.txt"?`},
		{"", "", outside("")},
		{"..", "", outside("..")},
		{"../model.txt", "", outside("../model.txt")},
		{"../../secret", "", outside("../../secret")},
		{"sub/../../../secret", "", outside("sub/../../../secret")},
		{filepath.Join(root, "secret"), "", outside(filepath.Join(root, "secret"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want != "" {
				want = filepath.Join(root, want)
			}
			got, err := s.Find(tt.name)
			if got != want || errText(err) != tt.err {
				t.Errorf("got %q, %v; want %q, %q", got, err, want, tt.err)
			}
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	const lowest = 2
	wrong := func(value, want string) string {
		return "parameter 'k' of model 'm' is '" + value + "', expected " + want
	}
	kinds := map[string]func(*steps.Settings) (any, error){
		"an integer of at least 2": func(s *steps.Settings) (any, error) { return s.Int("k", lowest) },
		"true or false":            func(s *steps.Settings) (any, error) { return s.Bool("k") },
		"a number":                 func(s *steps.Settings) (any, error) { return s.Float("k") },
	}
	accepted := map[string]map[string]any{
		"an integer of at least 2": {"2": 2, "007": 7, "9223372036854775807": 9223372036854775807},
		"true or false":            {"true": true, "false": false},
		"a number":                 {"2": 2.0, "007": 7.0, "-1.5": -1.5, "1e3": 1000.0, "1": 1.0, "-3": -3.0, "9223372036854775807": 9223372036854775807.0},
	}
	values := []string{
		"", "2", "007", "1", "-3", "9223372036854775807", "-1.5", "1e3", "true", "false", "True", "nan", "inf", "-Inf", "1e999", "2 ", "x",
		"99999999999999999999x",
	}
	for kind, read := range kinds {
		for _, value := range values {
			got, err := read(&steps.Settings{Model: "m", Params: map[string]string{"k": value}})
			if want, ok := accepted[kind][value]; ok {
				if err != nil || got != want {
					t.Errorf("%q as %s: %v, %v; want %v", value, kind, got, err, want)
				}
			} else if errText(err) != wrong(value, kind) {
				t.Errorf("%q as %s: %v, error %v", value, kind, got, err)
			}
		}
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	s := &steps.Settings{Model: "m", Params: map[string]string{"k": "7", "f": "0.5", "none": "x"}}
	r := steps.Reader{Settings: s}
	if n, f := r.Int("k", 1, 7), r.Float("f"); n != 7 || f != 0.5 || r.Err != nil {
		t.Errorf("got %d, %v, %v", n, f, r.Err)
	}
	r.Int("k", 1, 6)
	r.Float("none")
	if want := "parameter 'k' of model 'm' is 7, expected at most 6"; errText(r.Err) != want {
		t.Errorf("got error %v, expected the first: %s", r.Err, want)
	}
}

func TestExampleConfig(t *testing.T) {
	t.Parallel()
	want := "max_batch_size: 8\nparameters { key: \"step\" value { string_value: \"s\" } }\n" +
		`parameters { key: "p" value { string_value: "{\"a\": 1}" } }`
	if got := steps.ExampleConfig("max_batch_size: 8", "s", "p", `{"a": 1}`); got != want {
		t.Errorf("got\n%s\nexpected\n%s", got, want)
	}
}

func TestCheckWidth(t *testing.T) {
	t.Parallel()
	check := func(n int) error { return fmt.Errorf("found %d", n) }
	for _, test := range []struct {
		dims []int64
		want string
	}{{[]int64{3}, "model 'm': found 3"}, {[]int64{-1}, ""}, {[]int64{3, 3}, ""}} {
		s := &steps.Settings{Model: "m", Inputs: []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(test.dims...)}}}
		if got := errText(s.CheckWidth(check)); got != test.want {
			t.Errorf("dims %v: got %q, expected %q", test.dims, got, test.want)
		}
	}
}
