package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
)

// modelFile names the file of a two-input model that the test corrupts.
type modelFile struct{ backend, folder, model, file string }

var modelFiles = []modelFile{
	{"onnxruntime", "onnx", "simple_onnx", "model.onnx"},
	{"openvino", "openvino", "simple_openvino", "model.xml"},
	{"tensorflow", "tensorflow", "simple_tensorflow", "model.savedmodel/saved_model.pb"},
	{"tensorflow", "tensorflow", "simple_graphdef", "model.graphdef"},
}

// fault is one mistake in a model, and the texts that its error must contain.
type fault struct {
	file   func(path string) error
	config [2]string // a text in config.pbtxt and its replacement
	says   []string
}

func overwritten(with func(data []byte) []byte) func(string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, with(data), 0o600)
	}
}

var faults = map[string]fault{
	"type":      {file: overwritten(func([]byte) []byte { return []byte("GIF89a, and no model at all") }), says: []string{"expected a", `27 bytes that begin with "GIF89a`}},
	"truncated": {file: overwritten(func(data []byte) []byte { return data[:len(data)/2] }), says: []string{"expected a", "found "}},
	"empty":     {file: overwritten(func([]byte) []byte { return nil }), says: []string{"empty", "expected a"}},
	"missing":   {file: os.Remove},
	"names":     {config: [2]string{`"OUTPUT0"`, `"OUTPUT9"`}, says: []string{"unexpected inference output 'OUTPUT9'"}},
	"inputs":    {config: [2]string{`"INPUT1"`, `"INPUT9"`}, says: []string{"unexpected inference input 'INPUT9'"}},
	"dims":      {config: [2]string{"-1, 10 ]", "-1, 11 ]"}, says: []string{"OUTPUT1", "[-1,-1,10]", "[-1,-1,11]"}},
	"rank":      {config: [2]string{"-1, 10 ]", "10 ]"}, says: []string{"OUTPUT1", "[-1,-1,10]", "[-1,10]"}},
	"dtype":     {config: [2]string{"TYPE_INT64", "TYPE_INT32"}, says: []string{"INPUT1", "TYPE_INT32", "TYPE_INT64"}},
}

// withFault writes a copy of the model with the fault and returns its name.
func (m *modelFile) withFault(t *testing.T, repository, name string, f *fault) string {
	t.Helper()
	model := m.model + "_" + name
	dir := filepath.Join(repository, model)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(backendsDir, m.folder, m.model))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.pbtxt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(text, []byte(`"`+m.model+`"`), []byte(`"`+model+`"`))
	if from := []byte(f.config[0]); len(from) > 0 {
		if !bytes.Contains(changed, from) {
			t.Fatalf("'%s' has no %s", path, from)
		}
		changed = bytes.Replace(changed, from, []byte(f.config[1]), 1)
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if f.file != nil {
		if err := f.file(filepath.Join(dir, "1", filepath.FromSlash(m.file))); err != nil {
			t.Fatal(err)
		}
	}
	return model
}

// entry is a model's entry in the repository index.
type entry struct{ Name, State, Reason string }

// indexOf returns a server's repository index by model name.
func indexOf(t *testing.T, address string) map[string]entry {
	t.Helper()
	resp, err := http.Post("http://"+address+"/v2/repository/index", "application/json", strings.NewReader("{}")) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list []entry
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	index := map[string]entry{}
	for _, e := range list {
		index[e.Name] = e
	}
	return index
}

// TestWrongModels checks the errors of every two-input model with each kind of mistake: each error names the model,
// its file, the expected value and the found one. The correct models beside them keep responding.
// shows: backends.wrong
func TestWrongModels(t *testing.T) {
	t.Parallel()
	roots, flags := backendRoots(t)
	repository := t.TempDir()
	wrong := map[string][]string{} // the texts that the errors must contain, by model
	for i := range modelFiles {
		m := &modelFiles[i]
		if roots[backendRoot+m.folder] == "" {
			continue
		}
		for name, f := range faults {
			model := m.withFault(t, repository, name, &f)
			file, _, _ := strings.Cut(m.file, "/")
			wrong[model] = append([]string{"'" + model + "'", file}, f.says...)
		}
	}
	flags = append(flags, "--exit-on-error=false", "--strict-readiness=false", "--model-repository="+repository)
	for _, root := range roots {
		flags = append(flags, "--model-repository="+root)
	}
	a := serve(t, flags...)
	index := indexOf(t, a.http)
	for _, model := range slices.Sorted(maps.Keys(wrong)) {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			e := index[model]
			if e.State != "UNAVAILABLE" {
				t.Errorf("state = %s, want UNAVAILABLE", e.State)
			}
			for _, part := range wrong[model] {
				if !strings.Contains(e.Reason, part) {
					t.Errorf("reason = %q, want it to say %q", e.Reason, part)
				}
			}
		})
	}
	checkBackends(t, a, roots)
}

// checkBackends checks the responses of the correct models.
func checkBackends(t *testing.T, a addresses, roots map[string]string) {
	t.Helper()
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	for _, root := range roots {
		examples, err := cli.ReadExamples(root)
		if err != nil {
			t.Fatal(err)
		}
		sendAll(t, c, false, examples)
	}
}

// TestAbsentRuntimes checks the two-input models without their libraries: each is UNAVAILABLE with the command that
// installs the library, and a model that needs no library is served.
// shows: backends.wrong
func TestAbsentRuntimes(t *testing.T) {
	t.Parallel()
	nowhere, repository := t.TempDir(), t.TempDir()
	good := filepath.Join(repository, "good")
	config := "backend: \"identity\"\ninput [{ name: \"INPUT0\" data_type: TYPE_FP32 dims: 1 }]\noutput [{ name: \"OUTPUT0\" data_type: TYPE_FP32 dims: 1 }]\n"
	if err := os.MkdirAll(filepath.Join(good, "1"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(good, "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--exit-on-error=false", "--strict-readiness=false", "--model-repository=" + repository}
	for i := range modelFiles {
		m := &modelFiles[i]
		flags = append(flags, "--backend-config", m.backend+",library-path="+nowhere)
		if root := "--model-repository=" + filepath.Join(backendsDir, m.folder); !slices.Contains(flags, root) {
			flags = append(flags, root)
		}
	}
	index := indexOf(t, serve(t, flags...).http)
	for i := range modelFiles {
		m := &modelFiles[i]
		e := index[m.model]
		for _, part := range []string{nowhere, "run 'tutti runtime fetch " + m.backend + "'"} {
			if e.State != "UNAVAILABLE" || !strings.Contains(e.Reason, part) {
				t.Errorf("%s: state %s, reason %q, want it to say %q", m.model, e.State, e.Reason, part)
			}
		}
	}
	if e := index["good"]; e.State != "READY" {
		t.Errorf("the model without a runtime is %s: %s", e.State, e.Reason)
	}
}
