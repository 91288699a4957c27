package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestLostGPUExit checks that a server whose GPUs are lost ends with exit status 0 when it is told to stop, and says why in its log.
func TestLostGPUExit(t *testing.T) {
	t.Parallel()
	driver, root := cudatest.Library(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "m", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	const config = "backend: \"identity\"\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ -1 ] }\n"
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := newWatch()
	cmd := &exec.Cmd{
		Path: exe, Args: append([]string{"tutti", "serve", "--model-repository", root, "--cuda-driver", driver, "--backend-config=sim,all=true"}, freePorts...),
		Env: append(os.Environ(), "TUTTI_CUDA_CHECK_LOST=60", "GORACE="+raceOptions), Stdout: log, Stderr: log,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	a, ok := log.started()
	if !ok {
		t.Fatalf("the server did not start:\n%s", log)
	}
	lost := false
	for i := 0; i < 500 && !lost; i++ {
		code, text := post(t, "http://"+a.http+"/v2/models/m/infer", `{"inputs":[{"name":"INPUT0","shape":[4],"datatype":"FP32","data":[1,2,3,4]}]}`)
		lost = code == http.StatusServiceUnavailable && strings.Contains(text, "is lost, restart the server to use it again")
		if code != http.StatusOK && !lost {
			t.Fatalf("request %d: %d %s", i, code, text)
		}
	}
	if !lost {
		t.Fatal("no GPU was lost")
	}
	http.DefaultClient.CloseIdleConnections() // the server would wait for them
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "a GPU is lost") {
		t.Errorf("the server ended with %v:\n%s", err, log)
	}
}
