package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// freeModels writes a repository of Python models that share one model.py.
func freeModels(t *testing.T) string {
	t.Helper()
	root := unpack(t, "testdata/free.txtar")
	code, err := os.ReadFile(filepath.Join(root, "model.py"))
	if err != nil {
		t.Fatal(err)
	}
	configs, err := filepath.Glob(filepath.Join(root, "*", "config.pbtxt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs {
		dir := filepath.Join(filepath.Dir(c), "1")
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.py"), code, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// described sends a request for rows of two numbers, counted from 0, and returns the outputs or the error in one
// line.
func described(t *testing.T, url, model string, rows int) string {
	t.Helper()
	values := "[0,1]"
	if rows == 2 {
		values = "[0,1,2,3]"
	}
	code, body := post(t, url+"/v2/models/"+model+"/infer",
		fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"FP32","shape":[%d,2],"data":%s}],"outputs":[{"name":"OUT"}]}`, rows, values))
	var r struct {
		Error   string
		Outputs []struct {
			Datatype string
			Shape    []int
			Data     []any
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusOK {
		return r.Error
	}
	if len(r.Outputs) == 0 {
		return "nothing"
	}
	o := &r.Outputs[0]
	return fmt.Sprintf("%s %v %v", o.Datatype, o.Shape, o.Data)
}

// TestFreeOutputs checks Python models that respond with other data types, ranks and rows than their configurations
// declare, alone and as ensemble steps. The expected responses are those of Triton 2.51, except where a comment
// says otherwise.
// shows: backends.python
func TestFreeOutputs(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a, log := serveLogged(t, components(), "--model-repository="+freeModels(t))
	const id = "[request id: <id_unknown>] "
	for _, tc := range []struct {
		model    string
		one, two string // the results of requests with one and with two rows
	}{
		{"undeclared", "FP32 [1 2] [0 1]", "FP32 [2 2] [0 1 2 3]"},
		{"none", "nothing", "nothing"},
		{"rank", "FP32 [2] [0 1]", "FP32 [4] [0 1 2 3]"},
		{"deeper", "FP32 [1 1 2] [0 1]", "FP32 [1 1 4] [0 1 2 3]"},
		{"rows", "FP32 [3 2] [0 1 0 1 0 1]", "FP32 [6 2] [0 1 2 3 0 1 2 3 0 1 2 3]"},
		{"no_rows", "FP32 [0 2] []", "FP32 [0 2] []"},
		{"text", "BYTES [2] [a b]", "BYTES [2] [a b]"},
		{"scalar", "FP32 [] [3]", "FP32 [] [3]"},
		{"rows_plus", "FP32 [3 2] [100 101 100 101 100 101]", "FP32 [6 2] [100 101 102 103 100 101 102 103 100 101 102 103]"},
		{"rows_plus02", "FP32 [3 2] [100 101 100 101 100 101]", "FP32 [6 2] [100 101 102 103 100 101 102 103 100 101 102 103]"},
		{"rank_plus0", "FP32 [1 2] [100 101]", "FP32 [1 4] [100 101 102 103]"},
		{"rank_only", "FP32 [2] [0 1]", "FP32 [4] [0 1 2 3]"},
		{
			"rank_plus", "in ensemble 'rank_plus', " + id + "unexpected shape for input 'IN' for model 'plus'. Expected [-1,-1], got [2].",
			"in ensemble 'rank_plus', " + id + "unexpected shape for input 'IN' for model 'plus'. Expected [-1,-1], got [4].",
		},
		{
			"dtype_plus", "in ensemble 'dtype_plus', " + id + "inference input 'IN' data-type is 'FP16', but model 'plus' expects 'FP32'",
			"in ensemble 'dtype_plus', " + id + "inference input 'IN' data-type is 'FP16', but model 'plus' expects 'FP32'",
		},
		// Triton takes one of the three rows and then finds too many bytes.
		{
			"rows_plus0", "in ensemble 'rows_plus0', " + id + "unexpected shape for input 'IN' for model 'plus0'. Expected [-1], got [3,2].",
			"in ensemble 'rows_plus0', " + id + "unexpected shape for input 'IN' for model 'plus0'. Expected [-1], got [6,2].",
		},
		// Triton makes a scalar of the two numbers of one row.
		{"plus02_rank", "FP32 [2] [100 101]", "FP32 [4] [100 101 102 103]"},
	} {
		for i, want := range []string{tc.one, tc.two} {
			if got := described(t, "http://"+a.http, tc.model, i+1); !strings.HasPrefix(got, want) {
				t.Errorf("%s, %d rows: %s\nwant %s", tc.model, i+1, got, want)
			}
		}
	}
	if n := strings.Count(log.String(), "unexpected output 'BOGUS', expected 'OUT'"); n != 1 {
		t.Errorf("an output that is not declared was warned about %d times, want once", n)
	}
}

// TestStrictPythonOutputs checks that the server refuses the same responses when it is configured to.
func TestStrictPythonOutputs(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a := serve(t, "--model-repository="+freeModels(t), "--strict-python-outputs=true")
	for model, want := range map[string]string{
		"undeclared": "unexpected output 'BOGUS', expected 'OUT'",
		"dtype":      "expected a FP32 tensor of shape [1,-1], found a FP16 tensor of shape [1,2]",
		"rank":       "expected a FP32 tensor of shape [1,-1], found a FP32 tensor of shape [2]",
		"rows":       "expected a FP32 tensor of shape [1,-1], found a FP32 tensor of shape [3,2]",
		"plus":       "FP32 [1 2] [100 101]",
	} {
		if got := described(t, "http://"+a.http, model, 1); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", model, got, want)
		}
	}
}

// TestPythonWithoutPorts checks models that declare no inputs, no outputs, or neither.
func TestPythonWithoutPorts(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a := serve(t, "--model-repository="+unpack(t, "testdata/portless.txtar"))
	for model, want := range map[string]string{
		"bare":       `{"inputs":[]}`,
		"no_inputs":  `{"inputs":[]}`,
		"no_outputs": `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`,
	} {
		code, body := post(t, "http://"+a.http+"/v2/models/"+model+"/infer", want)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", model, code, body)
		}
		if model == "no_inputs" && !strings.Contains(body, `"data":[7.0]`) {
			t.Errorf("no_inputs: %s", body)
		}
	}
	code, body := post(t, "http://"+a.http+"/v2/models/bare/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
	if code != http.StatusBadRequest || !strings.Contains(body, "unexpected inference input 'IN' for model 'bare'") {
		t.Errorf("an input that bare does not have: %d %s", code, body)
	}
}

// TestIterativeCompleted checks a model with iterative sequences whose auto_complete_config adds its inputs: it
// need not name the control input of its config.pbtxt.
// shows: config.complete config.sequences
func TestIterativeCompleted(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a := serve(t, "--model-repository="+unpack(t, "testdata/iterative_completed.txtar"))
	code, body := post(t, "http://"+a.http+"/v2/models/turns/generate_stream", `{"TURNS": 3}`)
	if code != http.StatusOK || strings.Count(body, `"TURN":`) != 3 {
		t.Errorf("%d %s, want three responses", code, body)
	}
	code, body = post(t, "http://"+a.http+"/v2/models/turns/generate_stream", `{"TURNS": 1, "correlation_id": 5}`)
	if code != http.StatusOK || strings.Count(body, `"TURN":`) != 1 {
		t.Errorf("a name that is no input is a parameter: %d %s, want one response", code, body)
	}
}
