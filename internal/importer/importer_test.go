package importer_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/internal/importer"
)

// settings are those of the published pipelines in testdata.
func settings(file string) importer.Settings {
	s := importer.Settings{File: file, Metadata: importer.Folder("testdata/metadata")}
	if strings.Contains(file, "ovms") {
		s.Endpoint = "ovms.example:9000"
	}
	return s
}

// TestPipelines imports pipelines of the structure of published ones: the face analysis and the custom node of OpenVINO Model Server,
// the samples of KServe's graphs, and those of Seldon's pipelines.
func TestPipelines(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"testdata/*.json", "testdata/*.yaml"} {
		goldentest.Each(t, pattern, func(t *testing.T, file string) {
			t.Helper()
			r, err := importer.Import(t.Context(), settings(file))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := r.Write(dir); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for _, n := range r.Notes {
				fmt.Fprintf(&b, "%d: %s: %s: %s\n", n.Line, n.Place, n.What, n.Reason)
			}
			for _, name := range r.Ensembles {
				text, err := os.ReadFile(filepath.Join(dir, name, "config.pbtxt"))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "\n%s", text)
			}
			goldentest.Check(t, strings.TrimSuffix(file, filepath.Ext(file))+".golden", b.Bytes())
		})
	}
}

// TestBadInput checks the place and the reason of each error.
func TestBadInput(t *testing.T) {
	t.Parallel()
	goldentest.Each(t, "testdata/bad/*", func(t *testing.T, file string) {
		t.Helper()
		if filepath.Ext(file) == ".golden" {
			return
		}
		s := settings(file)
		if !strings.Contains(file, "cycle") {
			s.Endpoint = ""
		}
		_, err := importer.Import(t.Context(), s)
		if err == nil {
			t.Fatal("no error")
		}
		goldentest.Check(t, file+".golden", []byte(err.Error()+"\n"))
	})
}

// TestHostile imports files that are made to cost much: they fail, and soon.
func TestHostile(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'l'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 10), ","))
	}
	for name, test := range map[string]struct{ text, want string }{
		"aliases": {bomb.String(), "more than 200000 values with its aliases written out"},
		"deep":    {"a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested more than 100 deep"},
		"huge":    {strings.Repeat("#", 17<<20), "expected at most 16777216"},
		"empty":   {" \n", "the file is empty"},
		"binary":  {"\x00\x01\x02", "control characters are not allowed"},
		"cut":     {`{"model_config_list": [`, "line 1: the JSON is not valid"},
		"list":    {"- a\n- b\n", "found a list, expected an object"},
		"itself":  {"a: &a [*a]\n", "nested more than 100 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pipeline.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := importer.Import(t.Context(), importer.Settings{File: file}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error with %q", err, test.want)
			}
		})
	}
}

// FuzzImport checks that no file makes the import panic.
func FuzzImport(f *testing.F) {
	err := fs.WalkDir(os.DirFS("testdata"), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) == ".golden" || strings.HasPrefix(path, "metadata") {
			return err
		}
		data, err := os.ReadFile(filepath.Join("testdata", path))
		f.Add(data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.TempDir(), "pipeline")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := importer.Import(context.Background(), importer.Settings{File: file, Endpoint: "h:1", Metadata: importer.Folder("testdata/metadata")})
		if (r == nil) == (err == nil) {
			t.Fatalf("result %v and error %v", r, err)
		}
	})
}

// TestModelFiles imports a model of OpenVINO whose files are beside the configuration.
func TestModelFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"net/1/own.xml": "x", "net/1/own.bin": "y", "net/2/own.xml": "z", "net/notes.txt": "no"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "config.json")
	config := `{"model_config_list": [{"config": {"name": "net", "base_path": "/models/net", "nireq": 2, "target_device": "GPU", "plugin_config": {"NUM_STREAMS": "2", "NUM_STREAM": 1},
		"model_version_policy": {"specific": {"versions": [1, 2]}}}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := importer.Import(t.Context(), importer.Settings{File: file})
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := r.Write(to); err != nil {
		t.Fatal(err)
	}
	var found []string
	_ = fs.WalkDir(os.DirFS(to), ".", func(path string, e fs.DirEntry, _ error) error {
		if !e.IsDir() {
			found = append(found, path)
		}
		return nil
	})
	if got, want := strings.Join(found, " "), "net/1/own.bin net/1/own.xml net/2/own.xml net/config.pbtxt"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	text, err := os.ReadFile(filepath.Join(to, "net/config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	want := `name: "net"
backend: "openvino"
default_model_filename: "own.xml"
instance_group { kind: KIND_CPU count: 2 }
parameters { key: "TARGET_DEVICE" value { string_value: "GPU" } }
version_policy { specific { versions: [ 1, 2 ] } }
parameters { key: "NUM_STREAMS" value { string_value: "2" } }
`
	if string(text) != want {
		t.Errorf("configuration:\n%swant:\n%s", text, want)
	}
	if len(r.Notes) != 1 || r.Notes[0].What != "plugin_config NUM_STREAM of model 'net'" || !strings.Contains(r.Notes[0].Reason, `Did you mean "NUM_STREAMS"?`) {
		t.Errorf("notes %v, want one about NUM_STREAM", r.Notes)
	}
}
