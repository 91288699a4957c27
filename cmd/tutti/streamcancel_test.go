package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
)

const sourcePorts = `input [ { name: "IN" data_type: TYPE_INT32 dims: -1 }, { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }, { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
model_transaction_policy { decoupled: true }
`

// hanging responds once, waits until its request is cancelled, and notes that in a file.
const hanging = `import os, time, numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.notes = os.path.join(args["model_repository"], "cancelled")

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.array([7], numpy.int32))]))
            while not sender.is_cancelled():
                time.sleep(0.005)
            with open(self.notes, "a") as f:
                f.write("x")
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

const streamMaps = `input_map [ { key: "IN" value: "IN" }, { key: "DELAY" value: "DELAY" }, { key: "WAIT" value: "WAIT" } ]`

// cancelEnsemble returns an ensemble around the source. kind says what follows it.
func cancelEnsemble(source, kind string) string {
	text := `platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: -1 }, { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }, { name: "WAIT" data_type: TYPE_UINT32 dims: 1 } ]
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling {
  step { model_name: "` + source + `" model_version: -1 ` + streamMaps + ` output_map { key: "OUT" value: "a" } }
`
	switch kind {
	case "join": // the other stream sends as much as this one until the request is cancelled
		text += `  step { model_name: "other" model_version: -1 ` + streamMaps + ` output_map { key: "OUT" value: "b" } }
  step { model_name: "sum" model_version: -1 input_map [ { key: "A" value: "a" }, { key: "B" value: "b" } ] output_map { key: "OUTPUT" value: "OUT" } }
}
parameters { key: "step.sum.join" value { string_value: "a, b" } }
`
	case "window":
		text += `  step { model_name: "negate" model_version: -1 input_map { key: "INPUT" value: "a" } output_map { key: "OUTPUT" value: "OUT" } }
}
parameters { key: "step.negate.window" value { string_value: "1" } }
`
	case "early":
		text = strings.Replace(text, `dims: 1 }
ensemble`, `dims: 1 }
output { name: "a" data_type: TYPE_INT32 dims: 1 }
ensemble`, 1) + `  step { model_name: "negate" model_version: -1 input_map { key: "INPUT" value: "a" } output_map { key: "OUTPUT" value: "OUT" } }
}
parameters { key: "ensemble.early_outputs" value { string_value: "true" } }
`
	default:
		text += `  step { model_name: "negate" model_version: -1 input_map { key: "INPUT" value: "a" } output_map { key: "OUTPUT" value: "OUT" } }
}
`
	}
	return text
}

// TestCancellationReachesTheSource cancels requests after their first response, in each kind of stream and over each protocol: the model that is the
// source of the stream is cancelled, here, in a Python process and on another server.
func TestCancellationReachesTheSource(t *testing.T) {
	t.Parallel()
	requirePython(t)
	far := t.TempDir()
	writeModel(t, far, "go", `backend: "repeat" `+sourcePorts)
	other := startServer(t, "--model-repository="+far)
	root := t.TempDir()
	for _, name := range []string{"go", "other"} {
		writeModel(t, root, name, `backend: "repeat" `+sourcePorts)
	}
	writeModel(t, root, "python", `backend: "python" `+sourcePorts)
	writeFile(t, root+"/python/1/model.py", []byte(hanging))
	writeModel(t, root, "remote", `backend: "remote" parameters [ { key: "endpoint" value { string_value: "`+other.grpc+`" } }, { key: "remote_model" value { string_value: "go" } } ] `+sourcePorts)
	writeModel(t, root, "negate", `backend: "native" input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
parameters [ { key: "step" value { string_value: "tensor" } }, { key: "op" value { string_value: "negative" } } ]`)
	writeModel(t, root, "sum", `backend: "native" input [ { name: "A" data_type: TYPE_INT32 dims: 1 }, { name: "B" data_type: TYPE_INT32 dims: 1 } ] output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
parameters [ { key: "step" value { string_value: "tensor" } }, { key: "op" value { string_value: "add" } } ]`)
	sources, kinds := []string{"go", "python", "remote"}, []string{"model", "next", "window", "join", "early"}
	for _, source := range sources {
		for _, kind := range kinds[1:] {
			writeModel(t, root, kind+"_"+source, cancelEnsemble(source, kind))
		}
	}
	p := startServer(t, "--model-repository="+root)
	g := dialGRPC(t, p.grpc)
	defer func() { _ = g.Close() }()
	// Each protocol returns when the client has left after the first response.
	protocols := map[string]func(ctx context.Context, cancel context.CancelFunc, model string) (responses int, err error){
		"HTTP": func(ctx context.Context, cancel context.CancelFunc, model string) (int, error) {
			return leaveEvents(ctx, cancel, "http://"+p.http+"/v2/models/"+model+"/generate_stream")
		},
		"gRPC": func(ctx context.Context, cancel context.CancelFunc, model string) (responses int, err error) {
			err = g.Stream(ctx, &client.Request{Model: model, Inputs: []client.Tensor{
				client.Of("IN", []int64{2}, []int32{7, 8}...), client.Of("DELAY", []int64{2}, []uint32{0, 3_600_000}...), client.Of("WAIT", []int64{1}, uint32(0)),
			}}, func(*client.Response) error {
				responses++
				cancel()
				return nil
			})
			return responses, err
		},
	}
	// cancelled counts what each source has noticed.
	cancelled := map[string]func() int{
		"go":     func() int { return cancelledOf(t, p.addresses, "go") },
		"remote": func() int { return cancelledOf(t, other.addresses, "go") },
		"python": func() int {
			notes, err := os.ReadFile(root + "/python/cancelled")
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			return len(notes)
		},
	}
	for _, source := range sources {
		for _, kind := range kinds {
			for protocol, leave := range protocols {
				name := kind + "_" + source
				if kind == "model" {
					name = source
				}
				before := cancelled[source]()
				ctx, cancel := context.WithCancel(t.Context())
				responses, err := leave(ctx, cancel, name)
				cancel()
				if err == nil || responses == 0 {
					t.Errorf("%s over %s: %d responses, %v", name, protocol, responses, err)
					continue
				}
				repeated(t, name+" over "+protocol, func(context.Context) error {
					if n := cancelled[source](); n <= before {
						return fmt.Errorf("the source '%s' was not cancelled", source)
					}
					return nil
				})
			}
		}
	}
}

// cancelledOf returns how many requests of a model were cancelled.
func cancelledOf(tb testing.TB, a addresses, model string) (n int) {
	tb.Helper()
	for line := range strings.Lines(metricsOf(tb, a)) {
		if strings.HasPrefix(line, "nv_inference_request_failure{") && strings.Contains(line, `model="`+model+`"`) && strings.Contains(line, `reason="CANCELED"`) {
			if _, err := fmt.Sscanf(line[strings.LastIndexByte(line, ' ')+1:], "%d", &n); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return n
}

// leaveEvents sends a request for events, and leaves after the first one.
func leaveEvents(ctx context.Context, cancel context.CancelFunc, url string) (events int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"IN": [7, 8], "DELAY": [0, 3600000], "WAIT": 0}`))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch text := lines.Text(); {
		case text == "":
		case strings.Contains(text, `"model_version"`): // a response, not an error
			events++
			cancel()
		default:
			return events, errors.New(text)
		}
	}
	return events, lines.Err()
}
