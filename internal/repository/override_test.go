package repository_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

const doublesJSON = `{"backend":"native","max_batch_size":4,"parameters":{"step":{"string_value":"double"}}}`

// wantTempFolders waits until there are n folders of override files. Replaced and unloaded models are closed in the
// background.
func wantTempFolders(t *testing.T, dir string, n int) {
	t.Helper()
	for {
		list, err := filepath.Glob(filepath.Join(dir, "tutti-override-*"))
		if err = errors.Join(err, t.Context().Err()); err != nil {
			t.Fatal(err)
		}
		if len(list) == n {
			return
		}
	}
}

// TestConfigOverride checks a load with another configuration, and the next load without it.
// shows: repository.config
func TestConfigOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := folder(t, pair+"-- bare/2/ --\n"+ensemble("ens", step("part", "-1", "IN", "X")))
	r := w.explicit(t, root)
	batch := func(want int32) {
		t.Helper()
		if cfg, err := r.Config("part", 0); err != nil || cfg.GetMaxBatchSize() != want {
			t.Errorf("configuration %v, %v; want max_batch_size %d", cfg, err, want)
		}
	}
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: doublesJSON}), "")
	batch(4)
	load(t, r, "part", "") // an override lasts until the files change
	batch(4)
	touch(t, root, "part")
	load(t, r, "part", "")
	batch(8)
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: doublesJSON}), "")
	// Loading an ensemble does not reload a model that serves with an override.
	wantError(t, r.Load(t.Context(), "ens", infer.LoadOptions{}),
		"load failed for model 'ens': ensemble ens allows maximum batch size 8, but it contains model part which only allows maximum batch size to be 4\n")
	batch(4)
	wantError(t, r.Load(t.Context(), "bare", infer.LoadOptions{Config: doublesJSON}), "")
	wantValues(t, w, r, map[string]float32{"bare": 2})

	for config, want := range map[string]string{
		`{`:                                "failed to load 'part', failed to poll from model repository: Invalid config override: (line 1:2): unexpected end of JSON input",
		`{"backend":"native","x":1}`:       `failed to load 'part', failed to poll from model repository: Invalid config override: (line 1:21): unknown field "x"`,
		`{"max_batch_size":"many"}`:        "failed to load 'part', failed to poll from model repository: Invalid config override: (line 1:19): invalid value for int32 field maxBatchSize: \"many\"",
		`[]`:                               "failed to load 'part', failed to poll from model repository: Invalid config override: syntax error (line 1:1): unexpected token [",
		`{"name":"other","backend":"spy"}`: "failed to load 'part', failed to poll from model repository: unexpected directory name 'part' for model 'other', directory name must equal model name",
		`{"backend":"strange"}`:            "load failed for model 'part': version 1 is at UNAVAILABLE state: unable to find backend library for backend 'strange', try specifying runtime on the model configuration. Model 'part' needs backend 'strange', which is not built in;\n",
		strings.Repeat(" ", 5<<20):         "failed to load 'part', failed to poll from model repository: Invalid config override: 5242880 bytes, expected at most 4194304",
	} {
		wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: config}), want)
	}
	batch(4)
	load(t, r, "part", "") // failed overrides leave the first one in place
	batch(4)
	unload(t, r, "part", false)
	load(t, r, "part", "")
	batch(8)
	unload(t, r, "ens", false)
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: doublesJSON}), "")
	touch(t, root, "part")
	load(t, r, "ens", "") // an ensemble reloads changed models, which ends the override
	batch(8)
}

// TestFileOverride checks a load with files from the request. It is not parallel: it changes the folder of
// temporary files.
// shows: repository.files
func TestFileOverride(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair))
	files := map[string][]byte{"/5/model.bin": []byte("abc"), "labels.txt": []byte("cat\ndog\n")}
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Files: files}),
		"failed to load 'part', failed to poll from model repository: override files need an override of the configuration")
	labelled := `{"backend":"spy","max_batch_size":8,"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":["-1"],"label_filename":"labels.txt"}]}`
	o := infer.LoadOptions{Config: labelled, Files: files}
	wantError(t, r.Load(t.Context(), "new", o), "")
	wantError(t, r.Load(t.Context(), "part", o), "")
	wantIndex(t, r, "new 5 READY\nother\npart 5 READY\n")
	if d, err := r.Describe("new", 5); err != nil || !cmp.Equal(d.Outputs[0].Labels, []string{"cat", "dog"}) {
		t.Errorf("description %+v, %v", d, err)
	}
	wantTempFolders(t, dir, 2)
	wantError(t, r.Load(t.Context(), "new", o), "")
	load(t, r, "part", "")
	wantIndex(t, r, "new 5 READY\nother\npart 1 READY\npart 5 UNAVAILABLE unloaded\n")
	unload(t, r, "new", false)
	wantIndex(t, r, "new 5 UNAVAILABLE unloaded\nother\npart 1 READY\npart 5 UNAVAILABLE unloaded\n")
	wantTempFolders(t, dir, 0)
	ens := `{"platform":"ensemble","max_batch_size":8,"input":[{"name":"IN","data_type":"TYPE_FP32","dims":[-1]}],
"output":[{"name":"X","data_type":"TYPE_FP32","dims":[-1],"label_filename":"labels.txt"}],"ensemble_scheduling":{"step":[
{"model_name":"part","model_version":-1,"input_map":{"IN":"IN"},"output_map":{"OUT":"X"}}]}}`
	wantError(t, r.Load(t.Context(), "ens", infer.LoadOptions{Config: ens, Files: files}), "")
	unload(t, r, "part", false)
	load(t, r, "part", "")
	wantValues(t, w, r, map[string]float32{"ens": 2})
	unload(t, r, "ens", false)
	for name, want := range map[string]string{
		"../x": "outside the model's folder", "/../x": "outside the model's folder", "": "outside the model's folder", "/": "outside the model's folder",
		"1/../../x": "outside the model's folder", ".": "outside the model's folder", "5": "cannot be written", strings.Repeat("A", 256): "cannot be written",
	} {
		files := map[string][]byte{"5/x": nil, name: nil} // "5" cannot be a file and a folder
		err := r.Load(t.Context(), "part", infer.LoadOptions{Config: labelled, Files: files})
		const failed = "failed to load 'part', failed to poll from model repository: override file '"
		if err == nil || !strings.HasPrefix(err.Error(), failed) || !strings.Contains(err.Error(), want) || status.CodeOf(err) != status.Internal {
			t.Errorf("file %q: %v (%v)", name, err, status.CodeOf(err))
		}
	}
	wantError(t, r.Load(t.Context(), "new", infer.LoadOptions{Config: labelled, Files: map[string][]byte{"a/b": nil}}),
		"failed to load 'new', failed to poll from model repository: at least one version must be available under the version policy of model 'new'")
	wantTempFolders(t, dir, 0)
}

// TestForgottenNames checks that unloaded models which came from requests do not fill the index: the latest 100 stay. It is not
// parallel: it changes the folder of temporary files.
func TestForgottenNames(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair))
	o := infer.LoadOptions{Config: `{"backend":"spy"}`, Files: map[string][]byte{"1/model.bin": []byte("abc")}}
	for i := range 130 {
		name := "new" + strconv.Itoa(i)
		wantError(t, r.Load(t.Context(), name, o), "")
		unload(t, r, name, false)
	}
	var left []string
	for _, e := range r.Index(false) {
		if strings.HasPrefix(e.Name, "new") {
			left = append(left, e.Name)
		}
	}
	if len(left) != 100 || slices.Contains(left, "new29") || !slices.Contains(left, "new30") || !slices.Contains(left, "new129") {
		t.Errorf("%d names are left: %v; want the latest 100", len(left), left)
	}
	wantError(t, r.Load(t.Context(), "new0", o), "")
	load(t, r, "part", "")
}
