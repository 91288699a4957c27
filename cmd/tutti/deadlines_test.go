package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/steps"
)

// deadlineRepo writes two ensembles over the models of drainRepo, of which one allows a microsecond.
func deadlineRepo(t *testing.T) string {
	t.Helper()
	root := drainRepo(t)
	const chain = `platform: "ensemble" input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]
		ensemble_scheduling {
			step { model_name: "copy" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "copied" } }
			step { model_name: "held" model_version: -1 input_map { key: "INPUT0" value: "copied" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
		}`
	for name, text := range map[string]string{"chain": chain, "tight": chain + ` parameters { key: "ensemble.slo_ms" value { string_value: "0.001" } }`} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// within sends a request of TestDrain with a time limit, "" for none, and returns the status and the body of the response.
//
// The trace of the request is retained.
func within(t *testing.T, address, model, limit, body string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v2/models/"+model+"/infer", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if limit != "" {
		req.Header.Set("tutti-timeout-ms", limit)
	}
	req.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", rand.Uint64()|1, rand.Uint64()|1)) //nolint:gosec // ids
	req.Header.Set("tracestate", "tutti=retain")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestDeadlines checks the deadlines of requests to an ensemble: where they come from, what is refused on arrival once the server knows how
// long the steps take, and what bad limits are answered with.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	h := &held{begun: make(chan struct{}), let: make(chan struct{})}
	c := components()
	plain := c.Backends
	c.Backends = func(known *steps.Registry) []backends.Factory { return append(slices.Clone(plain(known)), h.factory()) }
	root := deadlineRepo(t)
	a := serveWith(t, c, "--model-repository="+root)
	perStep := serveWith(t, c, "--model-repository="+root, "--ensemble-timeout=per-step")
	ok := func(what string, code int, text string) {
		t.Helper()
		if code != http.StatusOK {
			t.Errorf("%s: status %d, %s", what, code, text)
		}
	}
	release := func() {
		<-h.begun
		metricsOf(t, a) // so that the model takes longer than the limits below, on the fastest machine
		h.let <- struct{}{}
	}
	for range 20 { // nothing is refused before there is an estimate; then it is learned
		go release()
		code, text := within(t, a.http, "chain", "600000", drainInput)
		ok("with much time", code, text)
	}

	responses := make(chan string, 1)
	go func() {
		code, text := within(t, a.http, "chain", "", drainInput)
		responses <- http.StatusText(code) + text
	}()
	<-h.begun // from here on the server is not idle
	const refusal = `Request deadline cannot be met: `
	micro := strings.Replace(drainInput, `{"inputs"`, `{"parameters":{"timeout":1},"inputs"`, 1)
	for what, r := range map[string][3]string{
		"header": {"chain", "0.001", drainInput}, "timeout": {"chain", "", micro}, "the shorter one": {"chain", "600000", micro}, "slo_ms": {"tight", "", drainInput},
	} {
		code, text := within(t, a.http, r[0], r[1], r[2])
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "in ensemble '"+r[0]+"', "+refusal) {
			t.Errorf("%s: status %d, %s, want a refusal", what, code, text)
		}
	}
	stub := dialStub(t, a.grpc)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tutti-timeout-ms", "0.001")
	if _, err := stub.ModelInfer(ctx, drainRequest("chain")); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), refusal) {
		t.Errorf("gRPC: %v, want a refusal", err)
	}
	h.let <- struct{}{}
	if got := <-responses; !strings.HasPrefix(got, "OK") {
		t.Errorf("the request in between: %s", got)
	}

	checkForecasts(t, a)

	for _, bad := range []string{"", "-1", "0", "soon", "NaN", "-Inf", "1e999", strings.Repeat("9", 400)} {
		wants := http.StatusBadRequest
		if bad == "" {
			continue
		}
		code, text := within(t, a.http, "chain", bad, drainInput)
		if code != wants || !strings.Contains(text, "header 'tutti-timeout-ms' is ") || len(text) > 300 {
			t.Errorf("limit %.20q: status %d, %s", bad, code, text)
		}
		ctx := metadata.AppendToOutgoingContext(context.Background(), "tutti-timeout-ms", bad)
		if _, err := stub.ModelInfer(ctx, drainRequest("chain")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("gRPC, limit %.20q: %v", bad, err)
		}
	}
	for what, r := range map[string][2]string{"absurdly long": {"1e300", drainInput}, "a long timeout": {"", strings.Replace(micro, ":1}", ":18446744073709551615}", 1)}} {
		go release()
		code, text := within(t, a.http, "chain", r[0], r[1])
		ok(what, code, text)
	}
	go release()
	code, text := within(t, perStep.http, "chain", "", micro)
	ok("--ensemble-timeout=per-step", code, text)

	metrics := metricsOf(t, a)
	for _, want := range []string{
		`ensemble_deadline_requests_total{model="chain",outcome="in_time",version="1"} 20`, `ensemble_deadline_requests_total{model="chain",outcome="late",version="1"} 0`,
		`ensemble_deadline_requests_total{model="chain",outcome="refused",version="1"} 4`, `ensemble_deadline_requests_total{model="tight",outcome="refused",version="1"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in %q", want, regexp.MustCompile("ensemble_deadline_requests.*").FindAllString(metrics, -1))
		}
	}
	if !regexp.MustCompile(`ensemble_deadline_prediction_ratio_count\{model="chain",version="1"\} [1-9]`).MatchString(metrics) {
		t.Error("no predictions are compared with the times that requests took")
	}
	var n int
	for line := range strings.Lines(metrics) {
		if strings.Contains(line, `reason="deadline_predicted"`) && strings.Contains(line, `model="chain"`) && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d metrics count the refusals, want 1", n)
	}
}

// checkForecasts checks the traces of TestDeadlines: a refused request has the prediction of each step, of which one refused it; a request
// that was in time has the predicted and the actual end of each step.
func checkForecasts(t *testing.T, a addresses) {
	t.Helper()
	var list inspect.TraceList
	dashboardAPI(t, a, "traces?model=chain&limit=1000", &list)
	refused, admitted := 0, 0
	for i := range list.Traces {
		var v inspect.TraceView
		dashboardAPI(t, a, "traces/"+list.Traces[i].ID, &v)
		if v.Due == nil || v.Due.PredictedNs == 0 {
			continue
		}
		names := make([]string, 0, 2)
		for _, s := range v.Due.Steps {
			names = append(names, s.Step)
			if s.PredictedNs <= 0 || s.PredictedNs > v.Due.PredictedNs || (s.EndNs == 0) != (v.Status != "ok") {
				t.Errorf("trace %s, %s: forecast %+v of a response expected after %d ns", v.ID, v.Status, s, v.Due.PredictedNs)
			}
		}
		if !slices.Equal(names, []string{"copy", "held"}) {
			t.Errorf("trace %s has forecasts of %q, want copy and held", v.ID, names)
		}
		if v.Status == "ok" {
			admitted++
			continue
		}
		refused++
		at := slices.IndexFunc(v.Events, func(e inspect.EventView) bool { return e.Kind == "deadline" })
		if v.Reason != "DEADLINE_UNREACHABLE" || v.Step != "held" || v.FinishMs == 0 || v.Due.PredictedNs <= v.Due.DeadlineNs || at < 0 ||
			v.Events[at].Node != 1 || !strings.HasPrefix(v.Events[at].Reason, "refused on arrival: in ensemble 'chain', Request deadline cannot be met: 'held'") {
			t.Errorf("trace of a refused request: %+v, due %+v", v, v.Due)
		}
	}
	if refused != 4 || admitted == 0 {
		t.Errorf("%d refused and %d admitted requests have predictions, want 4 and some of %d traces", refused, admitted, len(list.Traces))
	}
}
