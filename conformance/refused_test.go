package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestRefusedTraces checks that a refused request, over HTTP and over gRPC, leaves a trace with its error and the
// time at which it was read.
func TestRefusedTraces(t *testing.T) {
	t.Parallel()
	m := newModels(t)
	at := serve(t, m, append([]string{"--model-control-mode=explicit", "--strict-readiness=false"}, m.loads...)...)
	const input = `{"inputs":[{"name":"INPUT0",`
	for _, r := range []struct{ name, path, body, header, status string }{
		{"json", "id_fp32/infer", `{"inputs":[5]}`, "", "invalid_argument"},
		{"cut", "id_fp32/infer", `{"inputs":`, "", "internal"},
		{"framing", "id_fp32/infer", `{"inputs":[]}`, "1000", "invalid_argument"},
		{"unknown", "ghost/infer", `{}`, "", "invalid_argument"},
		{"version", "id_fp32/versions/7/infer", `{}`, "", "not_found"},
		{"dtype", "id_fp32/infer", input + `"datatype":"INT32","shape":[1,1],"data":[1]}]}`, "", "invalid_argument"},
		{"shape", "id_fp32/infer", input + `"datatype":"FP32","shape":[1],"data":[1]}]}`, "", "invalid_argument"},
		{"generate", "id_fp32/generate", `[`, "", "internal"},
	} {
		before := traces(t, at, "").Newest
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.http+"/v2/models/"+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		if r.header != "" {
			req.Header.Set("Inference-Header-Content-Length", r.header)
		}
		var answer struct{ Error string }
		fetch(t, req, &answer)
		model, _, _ := strings.Cut(r.path, "/")
		wantTrace(t, at, before, "HTTP_RECV", &inspect.TraceSummary{Request: r.name, Model: model, Status: r.status, Error: answer.Error})
	}
	refusedCalls(t, at)
}

// refusedCalls checks the same over gRPC.
func refusedCalls(t *testing.T, at addresses) {
	t.Helper()
	conn, err := grpc.NewClient(at.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := inference.NewGRPCInferenceServiceClient(conn)
	in := func(dtype string, dims ...int64) []*inference.ModelInferRequest_InferInputTensor {
		return []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: dtype, Shape: dims}}
	}
	for _, r := range []struct {
		name, model, status string
		inputs              []*inference.ModelInferRequest_InferInputTensor
	}{
		{"grpc unknown", "ghost", "invalid_argument", nil},
		{"grpc framing", "id_fp32", "invalid_argument", in("FP32", 2, 2)},
		{"grpc dtype", "id_fp32", "invalid_argument", in("INT32", 1, 1)},
		{"grpc shape", "id_fp32", "invalid_argument", in("FP32", 1)},
	} {
		before := traces(t, at, "").Newest
		_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{
			ModelName: r.model, Id: "its id", Inputs: r.inputs, RawInputContents: [][]byte{{1, 2, 3, 4}},
		})
		want := inspect.TraceSummary{Request: r.name, Model: r.model, Status: r.status, Error: grpcstatus.Convert(err).Message()}
		wantTrace(t, at, before, "GRPC_WAITREAD", &want)
	}
}

// wantTrace finds the only trace stored since before and compares it with want, whose Request names the case.
func wantTrace(t *testing.T, at addresses, before uint64, read string, want *inspect.TraceSummary) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	list := &inspect.TraceList{}
	for ctx.Err() == nil && len(list.Traces) == 0 {
		list = traces(t, at, fmt.Sprintf("?status=failed&after=%d", before))
	}
	if len(list.Traces) != 1 {
		t.Fatalf("%s: %d traces, expected 1", want.Request, len(list.Traces))
	}
	got := &list.Traces[0]
	if want.Error == "" || got.Error != want.Error || got.Status != want.Status || got.Model != want.Model || got.Retained != "failed" {
		t.Errorf("%s: %+v, expected %+v", want.Request, got, want)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.http+"/ui/api/traces/"+got.ID, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	var view inspect.TraceView
	fetch(t, req, &view)
	if len(view.Moments) < 2 || view.Moments[0].Name != read+"_START" || view.Moments[1].Name != read+"_END" || view.Moments[1].Ns <= 0 {
		t.Errorf("%s was read at %+v", want.Request, view.Moments)
	}
}

// traces returns the dashboard's list of traces.
func traces(t *testing.T, at addresses, query string) *inspect.TraceList {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.http+"/ui/api/traces"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	list := &inspect.TraceList{}
	fetch(t, req, list)
	return list
}

// fetch sends a request and decodes the JSON of the response.
func fetch(t *testing.T, req *http.Request, to any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
}
