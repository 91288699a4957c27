//go:build cgo

package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// operatorModels is a repository with two models: "custom" has an operator that crashes on -1, "plain" needs no native code.
func operatorModels(t *testing.T, isolation string) string {
	t.Helper()
	root := t.TempDir()
	model, err := os.ReadFile(filepath.Join("..", "..", "backends", "onnx", "testdata", "custom.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"custom/1/model.onnx": string(model),
		"custom/config.pbtxt": `backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: -1 } output { name: "y" data_type: TYPE_FP32 dims: -1 } ` +
			`model_operations { op_library_filename: "twice.so" } ` +
			`parameters { key: "isolation" value { string_value: "` + isolation + `" } }`,
		"plain/1/.keep": "",
		"plain/config.pbtxt": `backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } ` +
			`output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`,
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	onnxtest.Operators(t, filepath.Join(root, "custom", "twice.so"))
	return root
}

// operatorRequest sends a value to the model "custom", and returns the status, the header Retry-After and the body.
func operatorRequest(t *testing.T, a addresses, value string) (code int, after, text string, err error) {
	t.Helper()
	resp, err := http.Post("http://"+a.http+"/v2/models/custom/infer", "application/json", //nolint:noctx // ends with the server
		strings.NewReader(`{"id":"from-a-test","inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[`+value+`]}]}`))
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(body), err
}

// TestOperatorCrashes sends a request on which a custom operator crashes. Isolated, it fails with 503 and Retry-After, the server goes on, and
// the second crash is captured and stands in the index and the log with the model. Not isolated, the server ends: docs/reliability.md.
func TestOperatorCrashes(t *testing.T) {
	t.Parallel()
	library := preparedtest.Runtime(t, "onnxruntime")
	start := func(isolation string) *process {
		return startServer(t, "--model-repository", operatorModels(t, isolation), "--dashboard-token=0123456789abcdef", "--backend-config=onnxruntime,library-path="+library)
	}
	p := start("process")
	for range 2 {
		if code, after, text, err := operatorRequest(t, p.addresses, "-1"); err != nil || code != http.StatusServiceUnavailable || after == "" || !strings.Contains(text, "model 'custom'") {
			t.Errorf("a crash: %d, Retry-After %q, %s, %v", code, after, text, err)
		}
		if code, _, text, err := operatorRequest(t, p.addresses, "4"); err != nil || code != http.StatusOK || !strings.Contains(text, `"data":[8.0]`) {
			t.Errorf("after a crash: %d %s %v", code, text, err)
		}
		if code, text := post(t, "http://"+p.http+"/v2/models/plain/infer", `{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[7]}]}`); code != http.StatusOK {
			t.Errorf("another model: %d %s", code, text)
		}
	}
	if _, index := post(t, "http://"+p.http+"/v2/repository/index", ""); !strings.Contains(index, `"custom"`) || !strings.Contains(index, "2 times") || !strings.Contains(index, "are captured as ") {
		t.Errorf("the index does not report the request: %s", index)
	}
	var reports []string
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "again and again") {
			reports = append(reports, line)
		}
	}
	if len(reports) != 1 || !strings.Contains(reports[0], "custom") || !strings.Contains(reports[0], "from-a-test") {
		t.Errorf("the log's reports are %q, expected one with the model and the id of the request", reports)
	}

	p = start("none")
	if code, _, text, err := operatorRequest(t, p.addresses, "4"); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s %v", code, text, err)
	}
	if code, _, text, err := operatorRequest(t, p.addresses, "-1"); err == nil {
		t.Errorf("a crash in the server: %d %s", code, text)
	}
	if err := <-p.exit; err == nil {
		t.Error("the server ended with status 0")
	}
}
