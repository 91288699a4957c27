package otlp_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/tracing/otlp"
)

// TestCollector has the OpenTelemetry Collector take the spans of a request, by both
// protocols, and print them.
//
// shows: trace.spans
func TestCollector(t *testing.T) {
	t.Parallel()
	program := os.Getenv("TUTTI_COLLECTOR")
	if program == "" {
		t.Skip("there is no collector: make test-collector builds one (112 MB of modules) and runs this")
	}
	web, rpc := freeAddress(t), freeAddress(t)
	config := fmt.Sprintf(`{receivers: {otlp: {protocols: {http: {endpoint: %q}, grpc: {endpoint: %q}}}}, exporters: {debug: {verbosity: detailed}},`+
		` service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}`, web, rpc)
	cmd := exec.CommandContext(t.Context(), program, "--config=yaml:"+config)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	var said strings.Builder
	read := func(until string) {
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
			if until != "" && strings.Contains(lines.Text(), until) {
				return
			}
		}
	}
	read("Everything is ready")
	for protocol, url := range map[string]string{otlp.ProtocolHTTP: "http://" + web + "/v1/traces", otlp.ProtocolGRPC: "http://" + rpc} {
		tr, logged, end := start(t, "1", [2]string{"url", url}, [2]string{"protocol", protocol}, [2]string{"detail", "true"})
		ensemble(tr)
		end()
		if logged.Len() > 0 {
			t.Errorf("%s: %s", protocol, logged)
		}
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	read("")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for what, times := range map[string]int{
		clientParent[3:35]: 2, "Name           : InferRequest": 4, "Name           : compute": 2, "Name: cache_hit": 2,
		"triton.model_name: Str(a)": 4, "service.name: Str(triton-inference-server)": 2, "SpanLink #1": 2,
	} {
		if n := strings.Count(said.String(), what); n < times {
			t.Errorf("%q comes %d times, want %d", what, n, times)
		}
	}
	if t.Failed() {
		t.Log(said.String())
	}
}

// freeAddress returns an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
