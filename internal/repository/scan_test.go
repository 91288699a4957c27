package repository_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/repository"
)

const doubles = `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "double" } }`

func TestScan(t *testing.T) {
	t.Parallel()
	root := folder(t, `
-- .hidden/config.pbtxt --
`+doubles+`
-- .hidden/1/ --
-- a_file --
-- notes/README.md --
-- zeros/0/ --
-- plain/config.pbtxt --
`+doubles+`
-- plain/1/ --
-- many/config.pbtxt --
`+doubles+`
-- many/2/ --
-- many/10/ --
-- many/9/ --
-- many/011/ --
-- many/+12/ --
-- many/13x/ --
-- many/14 --
-- many/0/ --
-- many/-15/ --
-- many/99999999999999999999/ --
-- leading/config.pbtxt --
backend: "spy"
-- leading/01/ --
-- bare/config.pbtxt --
backend: "spy"
-- stepping/config.pbtxt --
`+doubles+`
-- nothing/1/ --
-- torn/config.pbtxt --
backend: "native"
max_batch_size: many
-- torn/1/ --
-- misnamed/config.pbtxt --
name: "other" backend: "native"
-- misnamed/1/ --
-- unreadable/config.pbtxt/ --
-- unreadable/1/ --
-- refused/config.pbtxt --
backend: "native" max_batch_size: -1
-- refused/1/ --
-- foreign/config.pbtxt --
backend: "strange"
-- foreign/1/ --
-- stepless/config.pbtxt --
backend: "native"
-- stepless/1/ --
-- flat/config.pbtxt --
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "plain" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "X" } } }
-- numbered/config.pbtxt --
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "many" model_version: 10 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "X" } } }
-- numbered/4/ --
`)
	elsewhere := folder(t, "-- config.pbtxt --\n"+doubles+"\n-- versions/ --\n")
	for link, to := range map[string]string{
		"linked": elsewhere, "dangling": filepath.Join(root, "nowhere"), "loop": filepath.Join(root, "loop"),
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(elsewhere, "versions"), filepath.Join(elsewhere, "3")); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var lines bytes.Buffer
	w.log = slog.NewTextHandler(&lines, nil)
	r := w.repo(t, root)
	for _, name := range []string{"011", "+12", "13x", "0", "-15", "99999999999999999999"} {
		if want := "folder '" + name + "' of model 'many' is no version and is ignored"; !strings.Contains(lines.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(lines.String(), "'14'") {
		t.Error("a notice about a file")
	}
	want := []string{"bare", "flat", "foreign", "leading", "linked", "many", "misnamed", "nothing", "numbered", "plain", "refused", "stepless", "stepping", "torn", "unreadable"}
	if d := cmp.Diff(want, r.Models()); d != "" {
		t.Errorf("models (-want +got):\n%s", d)
	}
	got := map[string]string{}
	for name, text := range failures(r) {
		got[name] = strings.ReplaceAll(text, root+"/", "")
	}
	if d := cmp.Diff(map[string]string{
		"bare":       "at least one version must be available under the version policy of model 'bare'",
		"leading":    "at least one version must be available under the version policy of model 'leading', folder '01' is no version",
		"nothing":    "failed to open text file for read nothing/config.pbtxt: file does not exist",
		"torn":       got["torn"], // the parser's text, checked below
		"misnamed":   "unexpected directory name 'misnamed' for model 'other', directory name must equal model name",
		"unreadable": "failed to open text file for read unreadable/config.pbtxt: expected a file, found " + folderMode(t, root, "unreadable/config.pbtxt"),
		"refused":    "'max_batch_size' must be non-negative value for refused",
		"foreign":    "unable to find backend library for backend 'strange', try specifying runtime on the model configuration. Model 'foreign' needs backend 'strange', which is not built in",
		"stepless":   "model 'stepless' of backend 'native' must name its step by parameter 'step', one of: double",
	}, got); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if text := got["torn"]; !strings.HasPrefix(text, "failed to read text proto from torn/config.pbtxt: ") || !strings.Contains(text, " 2:17: ") {
		t.Errorf("got failure %q, want the file, line and column", text)
	}
	for name, version := range map[string]string{"plain": "1", "many": "10", "linked": "3", "flat": "1", "numbered": "4", "stepping": "1"} {
		md, err := r.Metadata(name, 0)
		if err != nil || !cmp.Equal(md.Versions, []string{version}) {
			t.Errorf("model %s serves %+v, %v; want version %s", name, md, err, version)
		}
		if got, err := send(t.Context(), r, w.request(name, 4)); err != nil || got != 8 {
			t.Errorf("model %s returned %v, %v", name, got, err)
		}
	}
	if r.Ready() {
		t.Error("ready although models failed")
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	one := folder(t, "-- a/config.pbtxt --\n"+doubles+"\n-- a/1/ --\n-- b/config.pbtxt --\n"+doubles+"\n-- b/1/ --\n")
	two := folder(t, "-- b/config.pbtxt --\n"+doubles+"\n-- b/2/ --\n-- c/config.pbtxt --\n"+doubles+"\n-- c/1/ --\n")
	w := newWorld(t)
	r := w.repo(t, one, two)
	if d := cmp.Diff([]string{"a", "b", "c"}, r.Models()); d != "" {
		t.Errorf("models (-want +got):\n%s", d)
	}
	want := map[string]string{"b": "model 'b' is in more than one repository: '" + one + "/b' and '" + two + "/b'"}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if _, err := send(t.Context(), r, w.request("c", 1)); err != nil {
		t.Errorf("a model of the second root: %v", err)
	}
	if _, err := send(t.Context(), r, w.request("b", 1)); err == nil {
		t.Error("a model that is there twice serves")
	}
	gone := filepath.Join(one, "gone")
	if _, err := w.open(t.Context(), one, gone); err == nil || !strings.HasPrefix(err.Error(), "cannot read model repository: open "+gone) {
		t.Errorf("a root that is not there: %v", err)
	}
	empty := w.repo(t, t.TempDir())
	if !empty.Ready() || len(empty.Models()) != 0 {
		t.Error("an empty repository is not ready")
	}
}

const nested = `
-- plain/config.pbtxt --
` + doubles + `
-- plain/1/ --
-- other/config.pbtxt --
` + doubles + `
-- other/1/ --
-- torn/config.pbtxt --
backend: "strange"
-- torn/1/ --
-- inner/config.pbtxt --
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "MID" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "plain" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "MID" } } }
-- outer/config.pbtxt --
platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "inner" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "MID" value: "M" } }
  step { model_name: "plain" model_version: -1 input_map { key: "IN" value: "M" } output_map { key: "OUT" value: "X" } }
}
`

func TestOnly(t *testing.T) {
	t.Parallel()
	root := folder(t, nested)
	for _, tc := range []struct {
		name       string
		only, want []string
		ready      bool
		err        string
	}{
		{"everything", nil, []string{"inner", "other", "outer", "plain", "torn"}, false, ""},
		{"nothing", []string{}, nil, true, ""},
		{"a model", []string{"other"}, []string{"other"}, true, ""},
		{"an ensemble of ensembles", []string{"outer"}, []string{"inner", "outer", "plain"}, true, ""},
		{"both", []string{"plain", "inner", "plain"}, []string{"inner", "plain"}, true, ""},
		{"unknown", []string{"plain", "none"}, nil, false, "failed to load 'none', failed to poll from model repository: model not found in any model repository"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.only = tc.only
			r, err := w.open(t.Context(), root)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(r.Models(), tc.want) || r.Ready() != tc.ready {
				t.Errorf("models %v, ready %v; want %v, %v", r.Models(), r.Ready(), tc.want, tc.ready)
			}
			if err := r.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTolerant checks that the tolerant mode opens repositories which Open refuses otherwise.
// shows: repository.tolerant
func TestTolerant(t *testing.T) {
	t.Parallel()
	root := folder(t, plain("m", "spy"))
	gone := filepath.Join(root, "gone")
	for _, mode := range []repository.Mode{repository.Fixed, repository.Polled, repository.Explicit} {
		w := newWorld(t)
		w.more.Mode, w.more.Tolerant, w.more.PollInterval = mode, true, time.Nanosecond
		r := w.repo(t, root, gone)
		if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), "cannot read model repository: open "+gone) {
			t.Errorf("got error %v", err)
		}
		if r.Ready() || len(r.Models()) > 0 {
			t.Errorf("ready %v, models %v", r.Ready(), r.Models())
		}
		wantError(t, r.Load(t.Context(), "m", infer.LoadOptions{}), "Server not ready")
		wantError(t, r.Unload(t.Context(), "m", false), "Server not ready")
	}
	w := newWorld(t)
	w.more.Tolerant, w.only = true, []string{"none", "m"}
	r := w.repo(t, root)
	if !r.Ready() || r.Err() != nil || !slices.Equal(r.Models(), []string{"m"}) {
		t.Errorf("with an unknown name: ready %v, error %v, models %v", r.Ready(), r.Err(), r.Models())
	}
}

// folderMode returns the printed mode of a folder, which depends on the umask.
func folderMode(t *testing.T, root, name string) string {
	t.Helper()
	info, err := os.Stat(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().String()
}

// TestUnreadable checks that unreadable folders and an empty configuration fail only their models.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	root := folder(t, doubleModel+"-- closed/1/ --\n-- closed/config.pbtxt --\n"+doubles+"\n-- empty/1/ --\n-- empty/config.pbtxt --\n"+
		"-- labels/1/ --\n-- labels/config.pbtxt --\n"+doubles+"\noutput { name: \"OUT\" data_type: TYPE_FP32 dims: -1 label_filename: \"names\" }\n-- labels/names --\nx\n")
	for _, name := range []string{"closed", "labels/names"} {
		path := filepath.Join(root, name)
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) //nolint:gosec // so that the folder can be removed
	}
	w := newWorld(t)
	r := w.repo(t, root)
	got := map[string]string{}
	for name, text := range failures(r) {
		got[name] = strings.ReplaceAll(text, root+"/", "")
	}
	if d := cmp.Diff(map[string]string{
		"closed": "failed to open text file for read closed/config.pbtxt: stat closed/config.pbtxt: permission denied",
		"empty": "Invalid model name: Could not determine backend for model 'empty' with no backend in model configuration. " +
			"Expected model name of the form 'model.<backend_name>'.",
		"labels": "label file 'names' for output 'OUT' in model 'labels' cannot be read: open labels/names: permission denied",
	}, got); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if v, err := send(t.Context(), r, w.request("plain", 4)); err != nil || v != 8 {
		t.Errorf("the model beside them: %v, %v", v, err)
	}
}

// TestStrictEnsembleNeedsVersion checks that strict ensembles need a version folder, as in Triton. A native step,
// which Triton does not have, needs none.
func TestStrictEnsembleNeedsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.StrictEnsembleConfig = true
	r := w.repo(t, folder(t, "-- plain/config.pbtxt --\n"+doubles+"\n"+ensemble("ens", step("plain", "-1", "IN", "X"))))
	want := map[string]string{"ens": "at least one version must be available under the version policy of model 'ens'"}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	wantValues(t, w, r, map[string]float32{"plain": 2})
}
