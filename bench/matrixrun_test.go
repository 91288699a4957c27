package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// echoing returns a server of identity models. pid is the process whose CPU time and memory count as the server's.
func echoing(t *testing.T, name string, pid int) *server {
	t.Helper()
	e := servertest.NewEcho()
	h := httptest.NewServer(httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool()}))
	t.Cleanup(h.Close)
	return &server{name: name, Process: proc.Attach(pid, strings.TrimPrefix(h.URL, "http://"), "")}
}

const echoEnsemble = `platform: "ensemble"
ensemble_scheduling {
  step [
    { model_name: "echo" model_version: -1 input_map { key: "X" value: "y" } output_map { key: "X" value: "z" } },
    { model_name: "two" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "X" value: "y" } }
  ]
}`

// echoScenario returns an ensemble of two steps, which its configuration lists in reverse order.
func echoScenario(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{name: "chain", ensemble: "ensemble", dir: t.TempDir()}
	dir := filepath.Join(s.dir, s.ensemble)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(echoEnsemble), 0o600); err != nil {
		t.Fatal(err)
	}
	s.requests = []load.Request{{Model: s.ensemble, Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{2}, []float32{1, 2})}}}
	return s
}

// TestMatrix checks that each point of a scenario is measured for every server that supports it.
func TestMatrix(t *testing.T) {
	t.Parallel()
	s, servers := echoScenario(t), []*server{echoing(t, "tutti", os.Getpid()), echoing(t, "peer", 0)}
	m := &matrix{
		protocols: list{load.JSON, load.Binary}, loops: list{closed, poisson}, concurrency: counts{1, 2}, rounds: 2, time: 5 * time.Millisecond,
	}
	if err := m.agree(s, servers); err != nil {
		t.Fatal(err)
	}
	servers[1].can[load.Binary] = false
	for _, p := range m.protocols {
		if err := m.protocol(t.Context(), s, p, servers); err != nil {
			t.Fatal(err)
		}
	}
	// Two closed loops for each server, and two open loops for the pair.
	if len(m.report.Cells) != 6 {
		t.Fatalf("%d cells, want 6", len(m.report.Cells))
	}
	for _, c := range m.report.Cells {
		ours, peer := &c.Servers[0], &c.Servers[1]
		if len(ours.Rounds) != 2 || ours.Throughput <= 0 || ours.P50 <= 0 || ours.P999 < ours.P50 || ours.CPU <= 0 || ours.Resident <= 0 || ours.Errors != 0 {
			t.Errorf("%s %s %d: %+v", c.Protocol, c.Loop, c.Clients, ours)
		}
		if (peer.Missing != "") != (c.Protocol == load.Binary) || peer.CPU != 0 {
			t.Errorf("%s %s %d: the peer has %+v", c.Protocol, c.Loop, c.Clients, peer)
		}
		if (c.Rate > 0) != (c.Loop == poisson) {
			t.Errorf("a %s loop has rate %v", c.Loop, c.Rate)
		}
	}
}

// TestFixedRates checks that open loops of a given rate have all servers, except at a rate that one of them cannot serve.
func TestFixedRates(t *testing.T) {
	t.Parallel()
	s, servers := echoScenario(t), []*server{echoing(t, "tutti", 0), echoing(t, "peer", 0)}
	m := &matrix{protocols: list{load.JSON}, rates: counts{2000, 4000}, rounds: 1, time: 5 * time.Millisecond}
	if err := m.agree(s, servers); err != nil {
		t.Fatal(err)
	}
	at := cell{Protocol: load.JSON, Servers: []figures{{Server: "tutti", Throughput: 9000}, {Server: "peer", Throughput: 3000}}}
	if err := m.fixed(t.Context(), s, &at, servers); err != nil {
		t.Fatal(err)
	}
	if len(m.report.Cells) != 1 || m.report.Cells[0].Rate != 2000 || m.report.Cells[0].Loop != poisson || len(m.report.Cells[0].Servers) != 2 {
		t.Errorf("measured %+v, want the two servers at 2000 requests/s only", m.report.Cells)
	}
}

// TestName checks that a running server has the given name, and that a name without a server is refused.
func TestName(t *testing.T) {
	t.Parallel()
	if c, err := attached([]string{"127.0.0.1:1"}, "Triton with C++ backends"); err != nil || c.name != "Triton with C++ backends" {
		t.Errorf("the server has the name '%s' (%v)", c.name, err)
	}
	m := matrix{protocols: load.Protocols(), loops: list{closed}, instances: 1, threads: 1, rounds: 1, starts: 1, time: 1, name: "Triton"}
	if err := m.check(); err == nil || !strings.Contains(err.Error(), "expected -address") {
		t.Errorf("a name without a server gives %v", err)
	}
}

// TestTaxes checks that the steps alone get the requests that the ensemble sends them.
func TestTaxes(t *testing.T) {
	t.Parallel()
	s, servers := echoScenario(t), []*server{echoing(t, "tutti", os.Getpid())}
	servers[0].can = map[string]bool{load.Binary: true}
	m := &matrix{protocols: load.Protocols(), concurrency: counts{2}, rounds: 1, time: 5 * time.Millisecond}
	if err := m.taxes(t.Context(), s, servers); err != nil {
		t.Fatal(err)
	}
	if len(m.report.Taxes) != 1 {
		t.Fatalf("%d taxes, want 1", len(m.report.Taxes))
	}
	tax := m.report.Taxes[0]
	if len(tax.Steps) != 2 || tax.Ratio <= 0 || tax.CPU <= 0 || tax.Slowest == "" {
		t.Errorf("unexpected %+v", tax)
	}
}

// TestDisagree checks that a different response is an error, and so is a protocol that our server does not support.
func TestDisagree(t *testing.T) {
	t.Parallel()
	s, ours := echoScenario(t), echoing(t, "tutti", 0)
	m := &matrix{protocols: list{load.GRPC}}
	if err := m.agree(s, []*server{ours}); err == nil {
		t.Error("a protocol that ours cannot do is no error")
	}
	m.protocols = list{load.JSON}
	lies := httptest.NewServer(replies(`{"outputs":[{"name":"X","datatype":"FP32","shape":[2],"data":[1,3]}]}`))
	t.Cleanup(lies.Close)
	peer := &server{name: "peer", Process: proc.Attach(0, strings.TrimPrefix(lies.URL, "http://"), "")}
	if err := m.agree(s, []*server{ours, peer}); err == nil || !strings.Contains(err.Error(), "has 3 at 1, expected 2") {
		t.Errorf("a different response gives %v", err)
	}
}

// replies responds to every request with the same text.
func replies(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
}
