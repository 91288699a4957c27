package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/inspect"
)

const captureToken = "s3cret"

// readWithToken reads a path with the dashboard token. It fails the test if the path returns tensors without the token.
func readWithToken(t *testing.T, a addresses, path string) []byte {
	t.Helper()
	for _, token := range []string{"", captureToken} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.http+"/ui/api/"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case token == "" && resp.StatusCode != http.StatusForbidden && !strings.HasSuffix(path, "/tensors"):
			t.Errorf("%s without a token: %s", path, resp.Status)
		case token == "" && bytes.Contains(b, []byte("preview")):
			t.Errorf("%s without a token: %s", path, b)
		case token == "":
		case err != nil || resp.StatusCode != http.StatusOK:
			t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, b)
		default:
			return b
		}
	}
	return nil
}

// captureWhile runs tutti capture while several clients call send again and again. It returns the saved files by trace id.
func captureWhile(t *testing.T, a addresses, send func(n int), args ...string) map[string]*zip.Reader {
	t.Helper()
	out := t.TempDir()
	var log bytes.Buffer
	done := make(chan int, 1)
	over, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		args := append([]string{"tutti", "capture", "--url", "http://" + a.http, "--token", captureToken, "--out", out, "-o", "json"}, args...)
		done <- cli.Main(t.Context(), args, &log, &log, components())
		cancel()
	}()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := g; over.Err() == nil; n += 4 {
				send(n)
			}
		})
	}
	wg.Wait()
	if code := <-done; code != 0 {
		t.Fatalf("it ended with %d: %s", code, &log)
	}
	type file struct {
		File    string `json:"file"`
		Tensors int    `json:"tensors"`
	}
	var printed []file
	if err := json.Unmarshal(log.Bytes(), &printed); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	files := map[string]*zip.Reader{}
	names, err := filepath.Glob(filepath.Join(out, "*.npz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(name), ".npz")] = z
		i := slices.IndexFunc(printed, func(f file) bool { return f.File == name })
		if i < 0 || printed[i].Tensors == 0 {
			t.Errorf("%s is printed as %+v", name, printed)
		}
	}
	return files
}

// array returns the data of one array of a file.
func array(t *testing.T, z *zip.Reader, name string) string {
	t.Helper()
	f, err := z.Open(name + ".npy")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil || len(b) < 10 {
		t.Fatal(name, err)
	}
	return string(b[10+int(b[8])+int(b[9])<<8:])
}

// TestCapture checks that a capture of an ensemble of real models, under requests of both protocols at the same
// time, holds the tensors that the clients sent and received.
func TestCapture(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	a := serve(t, "--model-repository="+filepath.Join(examplesDir, "digits"), "--dashboard-token="+captureToken, "--trace-store-every=0")
	image, err := os.ReadFile(filepath.Join(examplesDir, "digits", "three.png"))
	if err != nil {
		t.Fatal(err)
	}
	h := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = h.Close() })
	g := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = g.Close() })
	send := func(n int) {
		c := client.Client(h)
		if n%2 == 0 {
			c = g
		}
		req := &client.Request{Model: "digits", ID: "r" + strconv.Itoa(n), Inputs: []client.Tensor{client.Text("IMAGE", []int64{1, 1}, string(image))}}
		if _, err := c.Infer(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	files := captureWhile(t, a, send, "--model=dig*", "--request=r*", "--every=3", "--count=10")
	if len(files) != 10 {
		t.Fatalf("%d files, expected 10", len(files))
	}
	for id, z := range files {
		if array(t, z, "request.IMAGE") != string(image) || len(array(t, z, "digits_cnn.scores")) != 40 || !strings.HasPrefix(array(t, z, "digits_top_k.labels"), "three") {
			t.Errorf("%s: %q", id, array(t, z, "digits_top_k.labels"))
		}
		checkCaptured(t, a, id)
	}
	var all inspect.CaptureList
	dashboardAPI(t, a, "captures", &all)
	if len(all.Captures) != 1 || all.Captures[0].Active || all.Captures[0].Taken != 10 || all.Used == 0 {
		t.Errorf("%+v", all)
	}
}

// checkCaptured reads a captured request through the dashboard's API.
func checkCaptured(t *testing.T, a addresses, id string) {
	t.Helper()
	var v inspect.TraceView
	dashboardAPI(t, a, "traces/"+id, &v)
	var list inspect.TensorList
	if err := json.Unmarshal(readWithToken(t, a, "traces/"+id+"/tensors"), &list); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i := range list.List {
		x := &list.List[i]
		kinds = append(kinds, x.Name+" "+x.Preview.Kind)
		if b := readWithToken(t, a, "traces/"+id+"/tensors/"+strconv.Itoa(x.N)+".npy"); !bytes.HasPrefix(b, []byte("\x93NUMPY")) {
			t.Errorf("%s is %q", x.Name, b)
		}
	}
	want := []string{
		"request.IMAGE image", "digits_decode.image numbers", "digits_cnn.scores numbers",
		"digits_top_k.values numbers", "digits_top_k.indices numbers", "digits_top_k.labels text",
	}
	if diff := cmp.Diff(want, kinds); diff != "" || !v.Captured || v.Request != list.Request || len(v.Spans) != 3 {
		t.Errorf("%+v (-want +got):\n%s", v.TraceSummary, diff)
	}
}

// TestCaptureStream checks a capture of an ensemble of decoupled steps, with one redacted tensor.
func TestCaptureStream(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository=../../examples/stream", "--dashboard-token="+captureToken, "--capture-redact-tensor=DELAY")
	c := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = c.Close() })
	send := func(int) {
		req := &client.Request{Model: "repeat_square", Inputs: []client.Tensor{
			client.Of("IN", []int64{2}, int32(2), int32(1)), client.Of("DELAY", []int64{2}, uint32(0), uint32(0)), client.Of("WAIT", []int64{1}, uint32(0)),
		}}
		if err := c.Stream(t.Context(), req, func(*client.Response) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	for id, z := range captureWhile(t, a, send, "--count=3", "--redact-tensor", "WAIT") {
		var names []string
		for _, f := range z.File {
			names = append(names, strings.TrimSuffix(f.Name, ".npy"))
		}
		var indices []string // the second response of repeat_int32 and the first of square_int32 come in any order, so the numbers may be 1 and 2, or 1 and 3
		for _, name := range names {
			if strings.HasPrefix(name, "repeat_int32.IDX@") {
				indices = append(indices, array(t, z, name))
			}
		}
		slices.Sort(indices)
		if array(t, z, "request.IN") != "\x02\x00\x00\x00\x01\x00\x00\x00" || array(t, z, "repeat_int32.OUT@1") != "\x02\x00\x00\x00" ||
			!slices.Equal(indices, []string{"\x00\x00\x00\x00", "\x01\x00\x00\x00"}) {
			t.Errorf("%s: %v", id, names)
		}
		if text := strings.Join(names, " "); strings.Contains(text, "DELAY") || strings.Contains(text, "WAIT") || strings.Count(text, "square_int32.OUT@") != 3 {
			t.Errorf("%s: %s", id, text)
		}
		if b := readWithToken(t, a, "traces/"+id+"/tensors"); strings.Count(string(b), `"why":"redacted"`) != 2 {
			t.Errorf("%s: %s", id, b)
		}
	}
}

// TestCaptureSecret checks that redaction covers every place where the server shows a request: a nested ensemble
// passes a secret on, which is redacted by its name in the nested ensemble only, and by a model.
func TestCaptureSecret(t *testing.T) {
	t.Parallel()
	const secret = "secret-4711"
	const port = `input { name: "INPUT0" data_type: TYPE_STRING dims: 1 } output { name: "OUTPUT0" data_type: TYPE_STRING dims: 1 }`
	step := func(model, in, from, out, to string) string {
		return `step { model_name: "` + model + `" model_version: -1 input_map { key: "` + in + `" value: "` + from + `" } output_map { key: "` + out + `" value: "` + to + `" } }` + "\n"
	}
	a, log := serveLogged(t, components(), "--dashboard-token="+captureToken, "--capture-redact-tensor=HID*", "--capture-redact-model=vault", "--log-verbose=1",
		"--model-repository="+models(t, map[string]string{
			"pass": `backend: "identity" max_batch_size: 4 dynamic_batching {}` + port, "vault": `backend: "identity" max_batch_size: 4 ` + port,
			"inner": `platform: "ensemble" max_batch_size: 4 input { name: "HIDDEN" data_type: TYPE_STRING dims: 1 } output { name: "SHOWN" data_type: TYPE_STRING dims: 1 }
ensemble_scheduling {` + step("vault", "INPUT0", "HIDDEN", "OUTPUT0", "between") + step("vault", "INPUT0", "between", "OUTPUT0", "SHOWN") + "}",
			"outer": `platform: "ensemble" max_batch_size: 4 input { name: "IN" data_type: TYPE_STRING dims: 1 } input { name: "OPEN" data_type: TYPE_STRING dims: 1 }
output { name: "OUT" data_type: TYPE_STRING dims: 1 } output { name: "OPENED" data_type: TYPE_STRING dims: 1 }
ensemble_scheduling {` + step("inner", "HIDDEN", "IN", "SHOWN", "OUT") + step("pass", "INPUT0", "OPEN", "OUTPUT0", "OPENED") + "}",
		}))
	c := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = c.Close() })
	send := func(int) {
		req := &client.Request{Model: "outer", Inputs: []client.Tensor{client.Text("IN", []int64{1, 1}, secret), client.Text("OPEN", []int64{1, 1}, "for-all")}}
		if resp, err := c.Infer(t.Context(), req); err != nil || !bytes.Contains(resp.Output("OUT").Data, []byte(secret)) {
			t.Errorf("%+v, %v", resp, err)
		}
	}
	for id, z := range captureWhile(t, a, send, "--count=4") {
		told := readWithToken(t, a, "traces/"+id+"/capture.npz")
		for _, path := range []string{"traces/" + id + "/tensors", "traces/" + id, "captures", "traces"} {
			var v any
			dashboardAPI(t, a, path, &v)
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, b...)
		}
		list := readWithToken(t, a, "traces/"+id+"/tensors")
		told = append(append(told, list...), log.String()...)
		for _, f := range z.File {
			told = append(told, array(t, z, strings.TrimSuffix(f.Name, ".npy"))...)
		}
		if bytes.Contains(told, []byte(secret)) || strings.Count(string(list), `"why":"redacted"`) != 3 || array(t, z, "pass.OUTPUT0") != "for-all" {
			t.Errorf("%s", list)
		}
	}
}
