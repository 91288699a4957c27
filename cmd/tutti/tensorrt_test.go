//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends/tensorrt/tensorrttest"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// planModels are plans of the stand-in library, with their configurations.
var planModels = map[string]struct{ config, plan string }{
	"scale": {`platform: "tensorrt_plan"`, "input x FP32 -1,4\nrange x 0 1,4 2,4 8,4\noutput y FP32 -1,4\nop affine y x 2 1\nmemory 4096\nend\n"},
	"shift": {
		`backend: "tensorrt" instance_group { kind: KIND_GPU gpus: 0 count: 2 profile: [ "0", "1" ] }`,
		"input y FP32 -1,4\nrange y 0 1,4 1,4 2,4\nrange y 1 1,4 4,4 8,4\noutput z FP32 -1,4\nop affine z y 3 -1\nmemory 512\nend\n",
	},
	"resize": {
		`backend: "tensorrt"`,
		"input x FP32 -1,4\nrange x 0 1,4 2,4 8,4\ninput s INT64 2 shape\nrange s 0 2 2 2\nvalues s 0 1,2 2,4 8,8\noutput y FP32 -1,-1\nop resize y x s\nend\n",
	},
	"truncated": {`backend: "tensorrt"`, "input x FP32 -1,4\noutput y FP32 -1,4\n"},
	"profile":   {`backend: "tensorrt" instance_group { kind: KIND_GPU gpus: 0 profile: "5" }`, "input x FP32 4\noutput y FP32 4\nop affine y x 1 0\nend\n"},
	"cpu":       {`backend: "tensorrt" instance_group { kind: KIND_CPU }`, "input x FP32 4\noutput y FP32 4\nop affine y x 1 0\nend\n"},
	"chain": {`platform: "ensemble" max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 }
		parameters { key: "require_resident" value { string_value: "true" } }
		ensemble_scheduling {
			step { model_name: "scale" model_version: -1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "mid" } }
			step { model_name: "shift" model_version: -1 input_map { key: "y" value: "mid" } output_map { key: "z" value: "OUT" } }
		}`, ""},
}

func planRepository(t *testing.T, major int) string {
	t.Helper()
	root := t.TempDir()
	for name, m := range planModels {
		dir := filepath.Join(root, name, "1")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(m.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if m.plan == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "model.plan"), []byte(tensorrttest.Versions[major]+m.plan), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// call sends a JSON body and returns the status and the response.
func call(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// rowsBody is a request with rows of 4 numbers from first on.
func rowsBody(input string, rows, first int) (body string, data []float32) {
	for i := range 4 * rows {
		data = append(data, float32(first+i))
	}
	text, _ := json.Marshal(data) //nolint:errchkjson // numbers
	return fmt.Sprintf(`{"inputs":[{"name":%q,"datatype":"FP32","shape":[%d,4],"data":%s}]}`, input, rows, text), data
}

// outputOf returns the data of the only output of a response.
func outputOf(t *testing.T, text string) []float32 {
	t.Helper()
	var r struct{ Outputs []struct{ Data []float32 } }
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&r); err != nil || len(r.Outputs) != 1 {
		t.Errorf("%v: %s", err, text)
		return nil
	}
	return r.Outputs[0].Data
}

// TestPlans serves plans and an ensemble of two over HTTP: exact results, one copy to the device and one back for each request, clear
// errors, and a model that is unloaded while it is used.
// shows: backends.tensorrt
func TestPlans(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	for major := range tensorrttest.Versions {
		t.Run(strconv.Itoa(major), func(t *testing.T) { //nolint:paralleltest // as above
			library := tensorrttest.Library(t, major)
			cudatest.Require(t)
			t.Cleanup(func() { // after the server
				cudatest.Check(t)
				tensorrttest.Check(t, library)
			})
			a := serve(t, "--model-repository", planRepository(t, major), "--cuda-driver="+cudatest.Library(t), "--backend-config=tensorrt,library-path="+library,
				"--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
			testPlans(t, "http://"+a.http+"/v2/")
		})
	}
}

func testPlans(t *testing.T, url string) {
	t.Helper()
	check := func(rows, first int) {
		body, data := rowsBody("IN", rows, first)
		code, text := call(t, url+"models/chain/infer", body)
		if code != http.StatusOK {
			t.Errorf("%d rows: %d %s", rows, code, text)
			return
		}
		want := make([]float32, len(data))
		for i, x := range data {
			want[i] = 3*(2*x+1) - 1
		}
		if got := outputOf(t, text); !slices.Equal(got, want) {
			t.Errorf("%d rows: got %v, want %v", rows, got, want)
		}
	}
	check(1, 0) // the first request makes streams and pools
	before := cudatest.Count(t)
	const requests = 20
	for i := range requests {
		check(1+i%8, i)
	}
	after := cudatest.Count(t)
	if up, down := after.Up-before.Up, after.Down-before.Down; up != requests || down != requests || after.Peer != before.Peer || after.Within != before.Within {
		t.Errorf("%d copies to the device, %d back, %d and %d on it, want one to it and one back for each of %d requests",
			up, down, after.Peer-before.Peer, after.Within-before.Within, requests)
	}
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := range 10 {
				check(1+(c+i)%3, 100*c+i)
			}
		})
	}
	clients.Wait()
	refusals(t, url)
	check(2, 7)
	unloadInUse(t, url)
}

// refusals checks the errors of requests and of models that did not load.
func refusals(t *testing.T, url string) {
	t.Helper()
	shape := `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]},{"name":"s","datatype":"INT64","shape":[1],"data":[%d]}]}`
	if code, text := call(t, url+"models/resize/infer", fmt.Sprintf(shape, 3)); code != http.StatusOK || !slices.Equal(outputOf(t, text), []float32{1, 2, 3}) {
		t.Errorf("a shape tensor: %d %s", code, text)
	}
	if code, text := call(t, url+"models/resize/infer", fmt.Sprintf(shape, 9)); code != http.StatusBadRequest || !strings.Contains(text, "model expected the shape value 1 to be between 2 and 8 (profile 0) but received 9") {
		t.Errorf("a value outside the profile: %d %s", code, text)
	}
	body, _ := rowsBody("x", 9, 0)
	if code, text := call(t, url+"models/scale/infer", body); code != http.StatusBadRequest || !strings.Contains(text, "must be <= 8") {
		t.Errorf("9 rows: %d %s", code, text)
	}
	code, index := call(t, url+"repository/index", "")
	if code != http.StatusOK {
		t.Error(code, index)
	}
	for _, want := range []string{
		"the plan is truncated", "Can not set the specified optimization profile 5[5] for profile. Expected optimization profile index range 0-0",
		"unable to load model 'cpu', TensorRT backend supports only GPU device",
	} {
		if !strings.Contains(index, want) {
			t.Errorf("the index lacks %q:\n%s", want, index)
		}
	}
	resp, err := http.Get(url + "models/resize/config") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	config, err := io.ReadAll(resp.Body)
	for _, want := range []string{`"max_batch_size":8`, `"is_shape_tensor":true`, `"dynamic_batching":{`, `"platform":"tensorrt_plan"`} {
		if err != nil || !strings.Contains(string(config), want) {
			t.Errorf("the configuration lacks %s: %s %v", want, config, err)
		}
	}
}

// unloadInUse unloads a model while requests are in flight: each is served or refused, and it loads again.
func unloadInUse(t *testing.T, url string) {
	t.Helper()
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for i := range 20 {
				body, _ := rowsBody("x", 1, i)
				if code, text := call(t, url+"models/scale/infer", body); code != http.StatusOK && !strings.Contains(text, "scale") {
					t.Errorf("while it is unloaded: %d %s", code, text)
				}
			}
		})
	}
	if code, text := call(t, url+"repository/models/scale/unload", `{"parameters":{"unload_dependents":false}}`); code != http.StatusOK {
		t.Errorf("unload: %d %s", code, text)
	}
	clients.Wait()
	if code, text := call(t, url+"repository/models/scale/load", ""); code != http.StatusOK {
		t.Errorf("load: %d %s", code, text)
	}
	body, _ := rowsBody("x", 1, 0)
	if code, text := call(t, url+"models/scale/infer", body); code != http.StatusOK || !slices.Equal(outputOf(t, text), []float32{1, 3, 5, 7}) {
		t.Errorf("after the load: %d %s", code, text)
	}
}
