package repository_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/repository"
)

// warm returns a model_warmup with one input IN.
func warm(data string) string {
	return `model_warmup { name: "one" batch_size: 2 count: 3 inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 2 ] ` + data + ` } } }`
}

// one returns the configuration of a model of the double step, with more appended.
func one(name, more string) string {
	return "-- " + name + "/config.pbtxt --\n" + doubles + "\n" + more + "\n-- " + name + "/1/ --\n"
}

// TestWarmup checks that the warm-up samples execute before the model serves, and that a failure refuses the load.
// shows: config.warmup
func TestWarmup(t *testing.T) {
	t.Parallel()
	root := folder(t, one("zero", warm("zero_data: true"))+one("random", warm("random_data: true"))+
		one("file", warm(`input_data_file: "two"`))+"-- file/warmup/two --\n12345678\n"+
		one("short", warm(`input_data_file: "four"`))+"-- short/warmup/four --\n1234"+"\n"+
		one("gone", warm(`input_data_file: "none"`))+
		one("out", warm(`input_data_file: "../../file/warmup/two"`))+
		one("link", warm(`input_data_file: "loop"`))+"-- link/warmup/x --\n"+
		one("dir", warm(`input_data_file: "d"`))+"-- dir/warmup/d/ --\n"+
		one("big", strings.ReplaceAll(warm("zero_data: true"), "dims: [ 2 ]", "dims: [ 1000000, 1000000, 1000000 ]"))+
		one("wrong", strings.ReplaceAll(warm("zero_data: true"), "TYPE_FP32", "TYPE_INT8"))+
		one("unknown", strings.ReplaceAll(warm("zero_data: true"), `"IN"`, `"OTHER"`)))
	if err := os.Symlink("loop", filepath.Join(root, "link", "warmup", "loop")); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	r := w.repo(t, root)
	want := map[string]string{
		"short":   "warmup setting expects 8 bytes, but the data provided from four only has 5 bytes",
		"gone":    "failed to open text file for read warmup/none: statat warmup/none: no such file or directory",
		"link":    "failed to open text file for read warmup/loop: statat warmup/loop: too many levels of symbolic links",
		"dir":     "failed to open text file for read warmup/d: expected a file, found " + folderMode(t, root, "dir/warmup/d"),
		"big":     "warmup setting expects at most 1073741824 bytes for input 'IN', found shape [1000000,1000000,1000000] of FP32",
		"wrong":   "failed to run warmup sample 'one': [request id: <id_unknown>] inference input 'IN' data-type is 'INT8', but model 'wrong' expects 'FP32'; ",
		"unknown": "failed to run warmup sample 'one': unexpected inference input 'OTHER' for model 'unknown'; ",
	}
	got := failures(r)
	if !strings.Contains(got["out"], "is outside model directory") {
		t.Errorf("a warm-up file outside of the folder: %q", got["out"])
	}
	delete(got, "out")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	for _, name := range []string{"zero", "random", "file"} {
		stats, err := r.Statistics(name, 0)
		if err != nil || stats[0].InferenceCount != 0 {
			t.Errorf("model %s has statistics %+v, %v; warming up must not count", name, stats, err)
		}
	}
}

// TestWarmupEveryInstance checks that every instance executes the warm-up.
// shows: config.warmup
func TestWarmupEveryInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, "-- m/config.pbtxt --\n"+`backend: "spy" max_batch_size: 8 instance_group { count: 3 } `+warm("zero_data: true")+"\n-- m/1/ --\n"))
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	if n := w.spy.count("execute m"); n != 9 {
		t.Errorf("%d executions, want 3 by each of 3 instances", n)
	}
}

// TestWarmupTogether checks that the requests of a sample execute as one batch with a row each, and that a sample
// without requests is skipped.
func TestWarmupTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var said bytes.Buffer
	w.log = slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})
	none := strings.NewReplacer(`"one"`, `"none"`, "batch_size: 2", "batch_size: 0").Replace(warm("zero_data: true"))
	r := w.repo(t, folder(t, "-- m/config.pbtxt --\n"+`backend: "spy" max_batch_size: 8 `+warm("zero_data: true")+none+"\n-- m/1/ --\n"))
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	if n, all := w.spy.count("execute m of 1 1"), w.spy.count("execute m"); n != 3 || all != 3 {
		t.Errorf("%d executions of two requests of a row, %d in all, want 3", n, all)
	}
	for _, want := range []string{
		"model 'm' instance m_0 is running warmup sample 'one' for iteration 1", "model 'm' instance m_0 is running warmup sample 'one' for iteration 3",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// TestGoldenRefusesReload checks that a failed golden request refuses a reload.
func TestGoldenRefusesReload(t *testing.T) {
	t.Parallel()
	const right = `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[[1,2.5]]}],"outputs":[{"name":"OUT","datatype":"FP32","shape":[1,2],"data":[2.00001,5]}]}`
	root := folder(t, one("m", "")+"-- m/golden/a.json --\n"+right+"\n-- m/golden/notes.txt --\nno request\n")
	w := newWorld(t)
	w.more.Mode = repository.Explicit
	r := w.repo(t, root)
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	file := filepath.Join(root, "m", "golden", "a.json")
	for text, why := range map[string]string{
		strings.Replace(right, "2.00001", "2.1", 1):                                     "output 'OUT' has 2 at element 0, expected 2.1",
		strings.Replace(right, `[2.00001,5]`, `[2,"NaN"]`, 1):                           "output 'OUT' has 5 at element 1, expected NaN",
		strings.Replace(right, `[2.00001,5]`, `[2]`, 1):                                 "output 'OUT' has 1 elements, expected 2 for shape [1,2]",
		strings.Replace(right, `"OUT","datatype":"FP32"`, `"OUT","datatype":"FP64"`, 1): "output 'OUT' is FP32, expected FP64",
		strings.Replace(right, `"name":"OUT"`, `"name":"X"`, 1):                         "the answer has no output 'X'",
		strings.Replace(right, `[[1,2.5]]`, `[[1,true]]`, 1):                            "input 'IN': has true among its data, expected FP32",
		`{"inputs":`: "cannot be parsed: unexpected end of JSON input",
		`{}`:         "it has no 'outputs' to compare with",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "golden request 'a.json' of model 'm': " + why
		if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
		index := r.Index(false)
		if len(index) != 1 || index[0].State != infer.Ready || index[0].Reason != want {
			t.Errorf("index %+v, want ready with reason %q", index, want)
		}
		if v, err := send(t.Context(), r, w.request("m", 4)); err != nil || v != 8 {
			t.Errorf("the old version returned %v, %v", v, err)
		}
	}
	loose := strings.Replace(strings.Replace(right, "2.00001", "2.1", 1), `{"inputs"`, `{"tolerance":{"absolute":0.2},"inputs"`, 1)
	if err := os.WriteFile(file, []byte(loose), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err != nil {
		t.Errorf("within the tolerance: %v", err)
	}
}

// TestGoldenOfEnsemble checks that the golden request of an ensemble refuses the reload of its model.
func TestGoldenOfEnsemble(t *testing.T) {
	t.Parallel()
	const golden = "-- ens/golden/a.json --\n" + `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}],"outputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[2]}]}` + "\n"
	root := folder(t, "-- part/config.pbtxt --\n"+`backend: "spy" max_batch_size: 8`+"\n-- part/1/ --\n"+
		ensemble("ens", step("part", "-1", "IN", "X"))+golden)
	w := newWorld(t)
	w.more.Mode = repository.Explicit
	r := w.repo(t, root)
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	w.spy.wrong.Store(true)
	touch(t, root, "part")
	err := r.Load(t.Context(), "part", infer.LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), "golden request 'a.json' of model 'ens': output 'X' has 0 at element 0, expected 2") {
		t.Errorf("got error %v", err)
	}
	w.spy.wrong.Store(false)
	if v, err := send(t.Context(), r, w.request("ens", 4)); err != nil || v != 8 {
		t.Errorf("the ensemble returned %v, %v", v, err)
	}
}

// shows: config.agents
func TestChecksum(t *testing.T) {
	t.Parallel()
	agent := func(name, key, value string) string {
		return `model_repository_agents { agents { name: "` + name + `" parameters { key: "` + key + `" value: "` + value + `" } } }`
	}
	const md5, sha = "b1946ac92492d2347c6235b4d2611184", "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	hello := func(name string) string { return "-- " + name + "/1/data --\nhello\n" }
	root := folder(t, one("md5", agent("checksum", "MD5:1/data", md5))+hello("md5")+
		one("sha", agent("checksum", "SHA256:1/data", sha))+hello("sha")+
		one("bad", agent("checksum", "md5:1/data", "00"))+hello("bad")+
		one("prefix", agent("checksum", "MD5:1/data", md5[:30]))+hello("prefix")+
		one("empty", agent("checksum", "MD5:1/data", ""))+hello("empty")+
		one("gone", agent("checksum", "MD5:1/none", md5))+
		one("out", agent("checksum", "MD5:../md5/1/data", md5))+
		one("crc", agent("checksum", "CRC:1/data", md5))+
		one("key", agent("checksum", "data", md5))+
		one("other", agent("lock", "MD5:1/data", md5)))
	got := failures(newWorld(t).repo(t, root))
	if !strings.Contains(got["other"], "libtritonrepoagent_lock.so") {
		t.Errorf("another agent: %q", got["other"])
	}
	delete(got, "other")
	want := map[string]string{
		"bad": "Mismatched MD5 hash for file 1/data, expect: 00, got: " + md5,
		// A sum must match in full: a prefix does not, and neither does an empty sum.
		"prefix": "Mismatched MD5 hash for file 1/data, expect: " + md5[:30] + ", got: " + md5,
		"empty":  "Mismatched MD5 hash for file 1/data, expect: , got: " + md5,
		"gone":   "failed to open text file for read 1/none: openat 1/none: no such file or directory",
		"out":    "failed to open text file for read ../md5/1/data: openat ../md5/1/data: path escapes from parent",
		"crc":    "Unsupported checksum algorithm: CRC",
		"key":    "failed to parse key: data",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}
