package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/tracing/otlp/otlptest"
	"github.com/tutti-server/tutti/proto/inference"
)

// chainRepo writes a repository with an ensemble of two steps.
func chainRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	const ports = "max_batch_size: 8\ninput [{ name: \"IN\" data_type: TYPE_INT32 dims: [2] }]\noutput [{ name: \"OUT\" data_type: TYPE_INT32 dims: [2] }]\n"
	const copies = "backend: \"identity\"\nmax_batch_size: 8\ninput [{ name: \"INPUT0\" data_type: TYPE_INT32 dims: [2] }]\noutput [{ name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [2] }]\ndynamic_batching {}\n"
	const steps = `platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "MID" } },
  { model_name: "second" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "OUT" } }
] }
`
	for name, text := range map[string]string{"chain": steps + ports, "first": copies, "second": copies} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const chainRequest = `{"id":"r1","inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[3,4]}]}`

func sendChain(t *testing.T, address, parent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v2/models/chain/infer", strings.NewReader(chainRequest))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", parent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// served runs a server while send runs, and waits until the server has ended.
func served(t *testing.T, send func(a addresses), args ...string) {
	t.Helper()
	t.Run("serve", func(t *testing.T) { send(serve(t, args...)) }) //nolint:paralleltest // the caller goes on when it has ended
}

// TestSpans checks the spans that a collector receives for an ensemble whose requests carry a trace context, over
// HTTP and gRPC: Triton's spans, and the ones with detail=true.
// shows: trace.spans
func TestSpans(t *testing.T) { //nolint:tparallel // the spans are read after the subtest that sends them
	cudatest.NotAtDevices(t, "its traces would have spans of copies")
	t.Parallel()
	compute := []string{"compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END"}
	for detail, parts := range map[string][]string{
		"false": compute, "true": slices.Concat([]string{"queue"}, compute, []string{"  input", "  infer", "  output"}),
	} {
		t.Run("detail="+detail, func(t *testing.T) { //nolint:paralleltest // as above
			r := otlptest.New(t)
			const id, web, rpc = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
			served(t, func(a addresses) {
				sendChain(t, a.http, "00-"+id+"-"+web+"-01")
				sendChain(t, a.http, "not one")
				callChain(t, a.grpc, "00-"+id+"-"+rpc+"-01")
				if got := traceSetting(t, a.http); got["url"] != r.HTTP || got["trace_mode"] != "opentelemetry" || got["trace_file"] != nil || got["bsp_schedule_delay"] != "5000" || got["detail"] != detail {
					t.Errorf("settings %v", got)
				}
			}, "--model-repository="+chainRepo(t), "--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=0",
				"--trace-config=opentelemetry,url="+r.HTTP, "--trace-config=opentelemetry,detail="+detail)
			checkChain(t, r, web, "InferRequest HTTP_RECV_START HTTP_RECV_END INFER_RESPONSE_COMPLETE HTTP_SEND_START HTTP_SEND_END", parts)
			checkChain(t, r, rpc, "InferRequest GRPC_WAITREAD_START GRPC_WAITREAD_END INFER_RESPONSE_COMPLETE GRPC_SEND_START GRPC_SEND_END", parts)
			checkBatches(t, r, id, map[string]int{"false": 0, "true": 4}[detail])
		})
	}
}

// checkChain compares the spans below the client's.
func checkChain(t *testing.T, r *otlptest.Receiver, client, front string, parts []string) {
	t.Helper()
	want := []string{front, "  chain REQUEST_START QUEUE_START REQUEST_END"}
	for _, step := range []string{"first", "second"} {
		want = append(want, "    "+step+" REQUEST_START QUEUE_START REQUEST_END")
		for _, p := range parts {
			want = append(want, "      "+p)
		}
	}
	above, _ := hex.DecodeString(client)
	got := r.Tree(above, "")
	got = slices.DeleteFunc(got, func(line string) bool { return strings.TrimSpace(line) == "batch" }) // present only if the request had to wait for a batch
	slices.Sort(got)                                                                                   // spans that start at the same time have no fixed order
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", client, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkBatches counts the batch spans, each of which links to one request of the trace.
func checkBatches(t *testing.T, r *otlptest.Receiver, id string, want int) {
	t.Helper()
	batches := 0
	for _, s := range r.Spans {
		if len(s.GetParentSpanId()) == 0 {
			batches++
			if s.GetName() != "batch" || len(s.GetLinks()) != 1 || hex.EncodeToString(s.GetLinks()[0].GetTraceId()) != id {
				t.Errorf("at the top is %v", s)
			}
		}
	}
	if batches != want {
		t.Errorf("%d batches, want %d: one for each of two steps of two requests", batches, want)
	}
}

func callChain(t *testing.T, address, parent string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "traceparent", parent)
	_, err = inference.NewGRPCInferenceServiceClient(conn).ModelInfer(ctx, &inference.ModelInferRequest{
		ModelName: "chain", RawInputContents: [][]byte{{1, 0, 0, 0, 2, 0, 0, 0}},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "INT32", Shape: []int64{1, 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func traceSetting(t *testing.T, address string) (got map[string]any) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/v2/trace/setting") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestTensorTrace checks that the trace file holds the tensors of an ensemble and of its steps.
// shows: trace.tensors
func TestTensorTrace(t *testing.T) { //nolint:tparallel // as above
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trace.json")
	served(t, func(a addresses) { sendChain(t, a.http, "") },
		"--model-repository="+chainRepo(t), "--trace-config=level=TENSORS", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=triton,file="+file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		ID       int    `json:"id"`
		Activity string `json:"activity"`
		Tensor   struct{ Name, Data, Shape, Dtype string }
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	got := map[int][]string{}
	for _, m := range list {
		if m.Activity != "" {
			got[m.ID] = append(got[m.ID], m.Activity+" "+m.Tensor.Name)
			if m.Tensor.Data != "3,4" || m.Tensor.Shape != "1,2" || m.Tensor.Dtype != "INT32" {
				t.Errorf("%+v", m)
			}
		}
	}
	step := "TENSOR_QUEUE_INPUT INPUT0,TENSOR_BACKEND_INPUT INPUT0,TENSOR_BACKEND_OUTPUT OUTPUT0"
	for id, want := range map[int]string{1: "TENSOR_QUEUE_INPUT IN,TENSOR_BACKEND_OUTPUT OUT", 2: step, 3: step} {
		if text := strings.Join(got[id], ","); text != want {
			t.Errorf("%d: %s, want %s", id, text, want)
		}
	}
}

const callerModel = `import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            x = pb_utils.get_input_tensor_by_name(r, "IN")
            call = pb_utils.InferenceRequest(
                model_name="first", requested_output_names=["OUTPUT0"], inputs=[pb_utils.Tensor("INPUT0", x.as_numpy())])
            out = pb_utils.get_output_tensor_by_name(call.exec(), "OUTPUT0")
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUT", out.as_numpy())]))
        return responses
`

// TestSpansOfCalls checks that a call from one model to another joins the caller's trace, with the called model's
// span below the caller's, as in Triton.
func TestSpansOfCalls(t *testing.T) { //nolint:paralleltest // as those of the examples
	cudatest.NotAtDevices(t, "outputs of called models would be on the GPU, where numpy cannot read them")
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	root := chainRepo(t)
	const config = "backend: \"python\"\nmax_batch_size: 8\ninput [{ name: \"IN\" data_type: TYPE_INT32 dims: [2] }]\noutput [{ name: \"OUT\" data_type: TYPE_INT32 dims: [2] }]\n"
	for name, text := range map[string]string{"config.pbtxt": config, "1/model.py": callerModel} {
		path := filepath.Join(root, "chain", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r := otlptest.New(t)
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	served(t, func(a addresses) { sendChain(t, a.http, "00-"+id+"-"+parent+"-01") },
		"--model-repository="+root, "--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=0",
		"--trace-config=opentelemetry,protocol=grpc", "--trace-config=opentelemetry,url="+r.GRPC)
	const compute = "compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END"
	want := []string{
		"InferRequest HTTP_RECV_START HTTP_RECV_END INFER_RESPONSE_COMPLETE HTTP_SEND_START HTTP_SEND_END",
		"  chain REQUEST_START QUEUE_START REQUEST_END", "    " + compute,
		"    first REQUEST_START QUEUE_START REQUEST_END", "      " + compute,
	}
	above, _ := hex.DecodeString(parent)
	if got := r.Tree(above, ""); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range r.Spans {
		if hex.EncodeToString(s.GetTraceId()) != id {
			t.Errorf("span %s is not part of the trace", s.GetName())
		}
	}
}
