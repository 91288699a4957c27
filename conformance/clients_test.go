// Package conformance_test runs Triton's own clients against the program: the suites of clients/ with tritonclient
// and perf_analyzer, against a server on free ports. It also keeps docs/compatibility.md up to date with the
// project's tests.
package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// flavours are the client modules of tritonclient. For example, grpc_aio is tritonclient.grpc.aio.
var flavours = []string{"http", "grpc", "http_aio", "grpc_aio"}

// suiteLimit bounds one client's run over the cases of a variant, with room for a machine under ten times the load.
const suiteLimit = 40 * time.Minute

// TestClients runs every case of clients/ with each client, against servers with different flags.
func TestClients(t *testing.T) {
	cudatest.NotAtDevices(t, "its cases expect a server without GPUs; TestBackends and TestCUDAClients have the clients at devices")
	t.Parallel()
	packages := clientPackages.require(t)
	m := newModels(t)
	certificates := writeCertificates(t)
	variants := []struct {
		name  string
		flags []string
	}{
		{"plain", append([]string{"--allow-client-shm=true", "--model-control-mode=explicit", "--strict-readiness=false"}, m.loads...)},
		{"tls", append(tlsFlags(certificates), "--model-control-mode=explicit", "--load-model=raw")},
		{"restricted", []string{
			"--http-restricted-api=inference,model-repository:key=word", "--grpc-restricted-protocol=inference,model-repository:key=word",
			"--exit-on-error=false", "--strict-readiness=false",
		}},
		{"tokens", []string{"--auth-file=" + writeTokens(t), "--model-control-mode=explicit", "--load-model=raw"}},
		{"tuned", []string{
			"--model-control-mode=explicit", "--load-model=raw", "--strict-model-config=false", "--reuse-http-port=true", "--metrics-address=127.0.0.1",
			"--grpc-header-forward-pattern=x-.*", "--grpc-keepalive-timeout=20000", "--grpc-keepalive-permit-without-calls=true",
			"--grpc-http2-min-recv-ping-interval-without-data=1000", "--trace-file=" + filepath.Join(certificates, "trace.json"),
			"--trace-level=TIMESTAMPS", "--trace-rate=1", "--trace-count=100", "--trace-log-frequency=1",
		}},
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			at := serve(t, m, v.flags...)
			for _, flavour := range flavours {
				t.Run(flavour, func(t *testing.T) {
					args := []string{"--flavour", flavour, "--variant", v.name, "--http", at.http, "--grpc", at.grpc, "--metrics", at.metrics, "--certificates", certificates}
					runSuite(t, packages, append(args, m.suiteFlags()...))
				})
			}
		})
	}
}

// writeTokens writes an auth file, and returns its path: one token may infer, one may only read.
func writeTokens(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"user": "user-0123456789abcdef", "reader": "reader-0123456789abcdef",
		"auth.yaml": "roles:\n  use: {apis: [health, metadata, inference], models: [raw]}\n  read: {apis: [health, metadata]}\n" +
			"tokens:\n- {name: user, file: user, roles: use}\n- {name: reader, file: reader, roles: read}\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "auth.yaml")
}

// outcome is a line of clients/run.py.
type outcome struct{ Case, Error, Skip string }

// runSuite makes a subtest of each line that clients/run.py prints. env is added to its environment.
func runSuite(t *testing.T, packages string, args []string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	script, err := filepath.Abs("clients/run.py")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "python3", append([]string{"-B", script}, args...)...)
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+packages), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	cases := 0
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		var o outcome
		if json.Unmarshal(lines.Bytes(), &o) != nil || o.Case == "" {
			t.Logf("the suite says: %s", lines.Text())
			continue
		}
		cases++
		o.report(t)
	}
	if err != nil || cases == 0 {
		t.Errorf("%d cases, then: %v\n%s", cases, err, stderr.String())
	}
}

func (o outcome) report(t *testing.T) {
	t.Helper()
	t.Run(o.Case, func(t *testing.T) {
		switch {
		case o.Error != "":
			t.Error(o.Error)
		case o.Skip != "":
			t.Skip(o.Skip)
		}
	})
}
