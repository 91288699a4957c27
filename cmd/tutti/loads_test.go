package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/inference"
)

// TestLoadReports checks what clients learn of a server whose model is busy, with requests in its queue: from the header of HTTP
// responses in Triton's formats, from the trailer of gRPC calls, from the metrics of the model and its ensemble, and from none where they
// do not ask.
//
// shows: loads
func TestLoadReports(t *testing.T) {
	t.Parallel()
	s := serveShares(t)
	done := make(chan string, 4)
	for i := range 4 {
		go func() { done <- s.http("a") }()
		if i == 0 {
			<-s.held.begun
		}
	}
	s.queued(3)

	report := func(path, body, format string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addresses.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if format != "" {
			req.Header.Set("endpoint-load-metrics-format", format)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.Header.Get("endpoint-load-metrics")
	}
	const infer, generate = "/v2/models/copy/infer", "/v2/models/copy/generate"
	for _, format := range []string{"", "xml", "bin"} {
		if got := report(infer, drainInput, format); got != "" {
			t.Errorf("format %q: the header is %q, want none", format, got)
		}
	}
	number := `\d+(\.\d+)?`
	text := regexp.MustCompile(`^TEXT application_utilization=` + number + `, cpu_utilization=` + number + `, rps_fractional=` + number + `, eps=` + number +
		`, named_metrics\.queued=3, named_metrics\.queued\.held=3, named_metrics\.running=[4-9], named_metrics\.streams=0, named_metrics\.wait_seconds=` + number + `, named_metrics\.wait_seconds\.held=` + number + `$`)
	for _, path := range []string{infer, generate, "/v2/models/none/infer"} {
		body := drainInput
		if path == generate {
			body = `{"INPUT0":[7]}`
		}
		for !text.MatchString(report(path, body, "text")) { // a report is used for a tenth of a second
			if t.Context().Err() != nil {
				t.Fatalf("%s: %q", path, report(path, body, "text"))
			}
		}
	}
	var v struct {
		Utilization float64            `json:"application_utilization"`
		Named       map[string]float64 `json:"named_metrics"`
	}
	got, ok := strings.CutPrefix(report(infer, drainInput, "json"), "JSON ")
	if err := json.Unmarshal([]byte(got), &v); !ok || err != nil || v.Utilization <= 0 || v.Named["queued.held"] != 3 {
		t.Errorf("JSON %q: %v", got, err)
	}

	var trailer metadata.MD
	if _, err := dialStub(t, s.addresses.grpc).ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "endpoint-load-metrics-format", "bin"), drainRequest("copy"), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	var r orcapb.OrcaLoadReport
	if got := trailer.Get("endpoint-load-metrics-bin"); len(got) != 1 || proto.Unmarshal([]byte(got[0]), &r) != nil || r.GetApplicationUtilization() <= 0 || r.GetNamedMetrics()["queued"] != 3 {
		t.Errorf("the trailer is %v", &r)
	}

	metrics := metricsOf(t, s.addresses)
	for name, want := range map[string]float64{
		`ensemble_model_requests_running{model="ens",version="1"}`: 4, `ensemble_utilization_ratio{model="ens",version="1"}`: 1,
		`ensemble_utilization_ratio{model="held",version="1"}`: 1, `ensemble_utilization_ratio{model="copy",version="1"}`: 0,
		`ensemble_predicted_wait_seconds{model="copy",version="1"}`: 0, `nv_inference_pending_request_count{model="held",version="1"}`: 3,
	} {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(metrics)
		if m == nil || m[1] != strconv.FormatFloat(want, 'f', -1, 64) {
			t.Errorf("%s is %v, want %v", name, m, want)
		}
	}
	s.release(3)
	s.held.let <- struct{}{}
	for range 4 {
		if text := <-done; !strings.HasPrefix(text, "200 ") {
			t.Error(text)
		}
	}
}

// TestLoadOfBalancer checks that grpc-go's own client of load reports gets them from the ORCA service, as its balancers do, without any
// call.
func TestLoadOfBalancer(t *testing.T) {
	t.Parallel()
	s := serveShares(t)
	reports := make(chan *orcapb.OrcaLoadReport, 1)
	balancer.Register(&listening{Builder: balancer.Get(roundrobin.Name), reports: reports})
	conn, err := grpc.NewClient(s.addresses.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"listening":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := inference.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), drainRequest("copy")); err != nil {
		t.Fatal(err)
	}
	if r := <-reports; r.GetNamedMetrics() == nil || r.GetApplicationUtilization() < 0 {
		t.Errorf("the report is %v", r)
	} else if _, ok := r.GetNamedMetrics()["wait_seconds"]; !ok {
		t.Errorf("the report is %v, want the longest wait", r)
	}
}

// listening is round_robin with a listener to the load reports of each connection.
type listening struct {
	balancer.Builder

	reports chan *orcapb.OrcaLoadReport
}

func (*listening) Name() string { return "listening" }

func (l *listening) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	return l.Builder.Build(&listeningConn{ClientConn: cc, l: l}, o)
}

// listeningConn makes connections that are listened to.
type listeningConn struct {
	balancer.ClientConn

	l *listening
}

func (c *listeningConn) NewSubConn(list []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	var sc balancer.SubConn
	var once sync.Once
	plain := o.StateListener
	o.StateListener = func(st balancer.SubConnState) {
		if st.ConnectivityState == connectivity.Ready {
			once.Do(func() { orca.RegisterOOBListener(sc, c.l, orca.OOBListenerOptions{}) })
		}
		plain(st)
	}
	var err error
	sc, err = c.ClientConn.NewSubConn(list, o) //nolint:staticcheck // what it wraps calls it, too
	return sc, err
}

// OnLoadReport implements orca.OOBListener.
func (l *listening) OnLoadReport(r *orcapb.OrcaLoadReport) {
	select {
	case l.reports <- r:
	default:
	}
}
