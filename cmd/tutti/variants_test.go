package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// serveProcess runs a server program until the test ends and expects exit status 0.
func serveProcess(t *testing.T, program string, args ...string) addresses {
	t.Helper()
	log := newWatch()
	c := exec.Command(program, append(append([]string{"serve"}, freePorts...), args...)...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		err := c.Wait()
		log.end()
		done <- err
	}()
	a, ok := log.started()
	if !ok {
		t.Fatalf("the server did not start:\n%s", log)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v:\n%s", err, log)
		}
	})
	return a
}

// TestCustomServer checks examples/custom, which is another module: its server has an additional step and backend,
// and its client program gets their response.
func TestCustomServer(t *testing.T) {
	t.Parallel()
	bin := preparedtest.Program(t, "custom", "custom")
	a := serveProcess(t, filepath.Join(bin, "server"), "--model-repository=../../examples/custom/models")
	for _, scheme := range []string{"http://" + a.http, "grpc://" + a.grpc} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "client"), scheme).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != "[2 -0.5 -2]" {
			t.Errorf("client of %s printed %q, %v; want [2 -0.5 -2]", scheme, got, err)
		}
	}
}

// TestWithoutCgo checks that a server built with CGO_ENABLED=0 serves an ensemble of native steps and reports the
// backends that it lacks.
func TestWithoutCgo(t *testing.T) {
	t.Parallel()
	program := preparedtest.Program(t, "nocgo", "tutti-nocgo")
	run := func(args ...string) string {
		out, _ := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		return string(out)
	}
	const advice = "backend 'onnxruntime' is not in this program, which was built without cgo: build it with a C compiler and CGO_ENABLED=1"
	if got := run("version"); !strings.Contains(got, "built without cgo") {
		t.Errorf("version printed %q", got)
	}
	if got := run("doctor", "onnxruntime"); !strings.Contains(got, advice) {
		t.Errorf("doctor printed %q", got)
	}
	root := t.TempDir()
	config := filepath.Join(root, "net", "config.pbtxt")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "net", "1"), 0o755), os.WriteFile(config, []byte(`platform: "onnxruntime_onnx"`), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := run("serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--model-repository="+root); !strings.Contains(got, advice) {
		t.Errorf("serve printed %q", got)
	}
	a := serveProcess(t, program, "--model-repository=../../internal/cli/starter/text")
	body := `{"inputs":[{"name":"TEXT","datatype":"BYTES","shape":[1,1],"data":["hello world"]}]}`
	resp, err := http.Post("http://"+a.http+"/v2/models/text/infer", "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"outputs":[{`) {
		t.Errorf("response %s: %s (%v)", resp.Status, text, err)
	}
}
