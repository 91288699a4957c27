package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/steps"
)

// sharesRepo is drainRepo with an ensemble of the model held, whose queue holds eight requests.
func sharesRepo(t *testing.T) string {
	t.Helper()
	root := drainRepo(t)
	const ports = `input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]`
	for name, text := range map[string]string{
		"held": `backend: "held" ` + ports + ` dynamic_batching { default_queue_policy { max_queue_size: 8 } }`,
		"ens": `platform: "ensemble" ` + ports + ` ensemble_scheduling { step { model_name: "held" model_version: -1
			input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }`,
	} {
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// sharesServer is a server that tells clients apart, and the model that it holds.
type sharesServer struct {
	addresses
	t    *testing.T
	held *held
}

func serveShares(t *testing.T, args ...string) *sharesServer {
	t.Helper()
	h := &held{begun: make(chan struct{}), let: make(chan struct{})}
	c := components()
	plain := c.Backends
	c.Backends = func(known *steps.Registry) []backends.Factory { return append(slices.Clone(plain(known)), h.factory()) }
	return &sharesServer{serveWith(t, c, append(args, "--model-repository="+sharesRepo(t), "--client-key=header:X-Client")...), t, h}
}

// http sends a request of a client over HTTP and returns the response as text.
func (s *sharesServer) http(client string) string {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.addresses.http+"/v2/models/ens/infer", strings.NewReader(drainInput))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("X-Client", client)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Tutti-Error-Reason"), " ", resp.Header.Get("Tutti-Error-Retryable"), " ", string(b))
}

// grpc sends a request of a client over gRPC.
func (s *sharesServer) grpc(client string) error {
	_, err := dialStub(s.t, s.addresses.grpc).ModelInfer(metadata.AppendToOutgoingContext(s.t.Context(), "x-client", client), drainRequest("ens"))
	return err
}

// stream sends a request of a client in a stream and returns the error of its response.
func (s *sharesServer) stream(client string) (string, error) {
	st, err := dialStub(s.t, s.addresses.grpc).ModelStreamInfer(metadata.AppendToOutgoingContext(s.t.Context(), "x-client", client))
	if err != nil {
		return "", err
	}
	if err := st.Send(drainRequest("ens")); err != nil {
		return "", err
	}
	r, err := st.Recv()
	return r.GetErrorMessage(), err
}

var queuedMetric = regexp.MustCompile(`(?m)^ensemble_requests_queued(?:{[^}]*})? (\d+)`)

// queued waits until so many requests wait for the model.
func (s *sharesServer) queued(n int) {
	s.t.Helper()
	for {
		m := queuedMetric.FindStringSubmatch(metricsOf(s.t, s.addresses))
		if m == nil {
			s.t.Fatal("no metric says how many requests are queued")
		}
		if m[1] == strconv.Itoa(n) {
			return
		}
	}
}

// release ends so many executions.
func (s *sharesServer) release(n int) {
	for range n {
		s.held.let <- struct{}{}
		<-s.held.begun
	}
}

// TestClientShares floods a server with requests of one client, and checks that those of another one, by HTTP, gRPC and in a stream, are
// executed by turns with the flood's and not behind it; that a full queue takes them in place of the flood's, which get 429 and
// RESOURCE_EXHAUSTED; and that a client alone has all of the queue.
//
// shows: shares
func TestClientShares(t *testing.T) {
	t.Parallel()
	s := serveShares(t, "--client-weights=b=1")
	flood := make(chan string, 9)
	for i := range 9 {
		go func() { flood <- s.http("flood") }()
		if i == 0 {
			<-s.held.begun
		}
	}
	s.queued(8)
	if text := s.http("flood"); !strings.HasPrefix(text, "503 QUEUE_FULL true ") {
		t.Errorf("a client alone gets %s, want that the queue is full", text)
	}

	b := make(chan string, 3)
	go func() { b <- s.http("b") }()
	refused := []string{<-flood}
	go func() { b <- fmt.Sprint(s.grpc("b")) }()
	refused = append(refused, <-flood)
	go func() {
		text, err := s.stream("b")
		b <- fmt.Sprint(text, err)
	}()
	refused = append(refused, <-flood)
	for _, text := range refused {
		if !strings.HasPrefix(text, "429 OVER_SHARE true ") || !strings.Contains(text, "in ensemble 'ens', client 'flood' is over its share") || !strings.Contains(text, `"retry_after_ms":`) {
			t.Errorf("a request that had to leave the queue got %s", text)
		}
	}
	if text := s.http("flood"); !strings.HasPrefix(text, "429 OVER_SHARE true ") {
		t.Errorf("HTTP: %s, want 429", text)
	}
	st := status.Convert(s.grpc("flood"))
	if i := slices.IndexFunc(st.Details(), func(d any) bool { e, ok := d.(*errdetails.ErrorInfo); return ok && e.GetReason() == "OVER_SHARE" }); st.Code() != codes.ResourceExhausted || i < 0 {
		t.Errorf("gRPC: %v with %v, want RESOURCE_EXHAUSTED", st.Err(), st.Details())
	}
	if text, err := s.stream("flood"); err != nil || !strings.Contains(text, "is over its share") {
		t.Errorf("stream: %s, %v", text, err)
	}

	s.release(7) // the one that executed, and six by turns
	for range 3 {
		if text := <-b; !strings.HasPrefix(text, "200 ") && text != "<nil>" && text != "<nil><nil>" && text != "" {
			t.Errorf("a request of the other client: %s", text)
		}
	}
	s.release(1)
	s.held.let <- struct{}{}
	for range 6 {
		if text := <-flood; !strings.HasPrefix(text, "200 ") {
			t.Errorf("a request of the flood that was within its share: %s", text)
		}
	}

	if text := metricsOf(t, s.addresses); !strings.Contains(text, `ensemble_client_refusals_total{client="flood"} 6`) || !strings.Contains(text, `reason="over_share"`) {
		t.Error("the metrics do not say that 6 requests of the flood were over its share:\n" + strings.Join(regexp.MustCompile(`(?m)^ensemble_(client_)?refusals.*$`).FindAllString(text, -1), "\n"))
	}
	resp, err := http.Get("http://" + s.addresses.http + "/ui/api/traces?status=failed") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(text), `"client":"flood"`) < 6 {
		t.Errorf("the traces of failed requests have not the client: %.600s, %v", text, err)
	}
}
