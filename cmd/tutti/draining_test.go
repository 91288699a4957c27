package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// process is a server in a process of its own.
type process struct {
	*child
	t *testing.T
	addresses
}

// startServer starts the command serve on free ports, unless args name others. It is killed at the end of the test.
func startServer(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, &exec.Cmd{Path: exe, Args: append(append([]string{"tutti", "serve"}, freePorts...), args...), Env: append(os.Environ(), "GORACE="+raceOptions)})
}

// startCommand starts a command that is a server, and waits for its services.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := beginCommand(t, cmd)
	var ok bool
	if p.addresses, ok = p.log.started(); !ok {
		t.Fatalf("the server did not start:\n%s", p.log)
	}
	return p
}

// beginCommand starts a command.
func beginCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, child: &child{cmd: cmd, log: newWatch(), exit: make(chan error, 1)}}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		err := cmd.Wait()
		p.log.end()
		p.exit <- err
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// await waits until the log has a text.
func (p *process) await(text string) {
	p.t.Helper()
	if !p.log.await(func(log string) bool { return strings.Contains(log, text) }) {
		p.t.Fatalf("the log has no %q:\n%s", text, p.log)
	}
}

// copyRepo writes a repository with the model copy.
func copyRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	writeModel(t, root, "copy", `backend: "identity" input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]`)
	return root
}

// TestDrainTime checks a server during --drain-secs: everything says that it is not ready, requests over open and new connections are
// served, and connections are kept. A second signal ends the process at once.
func TestDrainTime(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--model-repository="+copyRepo(t), "--drain-secs=600")
	conn, err := net.Dial("tcp", p.http) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	responses := bufio.NewReader(conn)
	kept := func() {
		t.Helper()
		if code, text, closing := exchange(t, conn, responses, "/v2/models/copy/infer", drainInput); code != http.StatusOK || closing {
			t.Errorf("over the open connection: got status %d, %s, closing %v", code, text, closing)
		}
	}
	kept()
	stub := dialStub(t, p.grpc)
	stream, err := stub.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	streamed := func() {
		t.Helper()
		if err := stream.Send(drainRequest("copy")); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if got := outcome(m.GetInferResponse(), err); got != "7" {
			t.Errorf("over the stream: got %s", got)
		}
	}
	streamed()
	plain, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	health := grpc_health_v1.NewHealthClient(plain)
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if m, err := watch.Recv(); err != nil || m.GetStatus() != want {
			t.Fatalf("watched %v, %v, want %v", m, err, want)
		}
	}
	told(grpc_health_v1.HealthCheckResponse_SERVING)

	p.signal(syscall.SIGTERM)
	told(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	p.await("draining: not ready any more")
	for path, want := range map[string]int{"/v2/health/ready": 503, "/v2/health/live": 200, "/v2/models/copy/ready": 200} {
		if code, text := fetch(t, "http://"+p.http+path, ""); code != want {
			t.Errorf("%s: got status %d, %s, want %d", path, code, text, want)
		}
	}
	if m, err := stub.ServerReady(t.Context(), &inference.ServerReadyRequest{}); err != nil || m.GetReady() {
		t.Errorf("ServerReady: %v, %v", m, err)
	}
	if m, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil || m.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Check: %v, %v", m, err)
	}
	kept()
	streamed()
	if code, text := fetch(t, "http://"+p.http+"/v2/models/copy/infer", drainInput); code != http.StatusOK {
		t.Errorf("over a new connection: got status %d, %s", code, text)
	}
	if got := outcome(dialStub(t, p.grpc).ModelInfer(t.Context(), drainRequest("copy"))); got != "7" {
		t.Errorf("over a new gRPC connection: got %s", got)
	}

	p.signal(syscall.SIGTERM)
	exit, ok := errors.AsType[*exec.ExitError](<-p.exit)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the second signal ended the process with %v:\n%s", exit, p.log)
	}
}

// TestAfterDrainTime checks the end of --drain-secs: an open stream ends with an error that may be retried, gRPC and HTTP/2
// connections get GOAWAY, HTTP connections close after a response, and the exit status is 0.
func TestAfterDrainTime(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--model-repository="+copyRepo(t), "--drain-secs=1", "--exit-timeout-secs=600", "--exit-connection-secs=300")
	conn, err := net.Dial("tcp", p.http) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	responses := bufio.NewReader(conn)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	second := func() (int, error) {
		resp, err := h2.Post("http://"+p.http+"/v2/models/copy/infer", "application/json", strings.NewReader(drainInput)) //nolint:noctx // ends with the server
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode*10 + resp.ProtoMajor, err
	}
	if got, err := second(); got != 2002 || err != nil {
		t.Fatalf("over HTTP/2: %d, %v", got, err)
	}
	stub := dialStub(t, p.grpc)
	stream, err := stub.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(drainRequest("copy")); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); outcome(m.GetInferResponse(), err) != "7" {
		t.Fatalf("over the stream: got %v, %v", m, err)
	}
	p.signal(syscall.SIGTERM)
	_, err = stream.Recv()
	if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != "GRPC server is shutting down and has stopped accepting new requests." {
		t.Errorf("the stream ended with %v", err)
	}
	// The listener of gRPC is closed, so a connection that got GOAWAY is not replaced.
	for err = nil; err == nil; {
		_, err = stub.ServerLive(context.Background(), &inference.ServerLiveRequest{})
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("after GOAWAY: %v", err)
	}
	p.await("Found 2 HTTP service connections")
	if got, err := second(); got != 2002 || err != nil {
		t.Errorf("over HTTP/2 after the drain time: %d, %v", got, err)
	}
	p.await("Found 1 HTTP service connections") // the one of HTTP/2 has ended
	if code, text, closing := exchange(t, conn, responses, "/v2/models/copy/infer", drainInput); code != http.StatusOK || !closing {
		t.Errorf("after the drain time: got status %d, %s, closing %v", code, text, closing)
	}
	if err := <-p.exit; err != nil {
		t.Errorf("the server ended with %v:\n%s", err, p.log)
	}
}
