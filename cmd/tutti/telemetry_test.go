package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNoTelemetry serves an ONNX model, in the server's process and isolated, with an environment in which ONNX Runtime collects events: its
// database in the home folder is not made, and nothing else is written there.
func TestNoTelemetry(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(filepath.Join("..", "..", "backends", "onnx", "testdata", "loop.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	runtime := requireRuntime(t)
	for _, isolation := range []string{"none", "process"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			root, home := t.TempDir(), t.TempDir()
			writeModel(t, root, "loop", `backend: "onnxruntime"`)
			writeFile(t, filepath.Join(root, "loop", "1", "model.onnx"), model)
			// Variables of CI systems are left out: they turn telemetry off too.
			p := startCommand(t, &exec.Cmd{
				Path: exe, Args: append(append([]string{"tutti", "serve"}, freePorts...), "--model-repository="+root, "--isolation="+isolation, "--backend-config=onnxruntime,library-path="+runtime),
				Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + t.TempDir(), "GORACE=" + raceOptions},
			})
			if got, err := loops(t.Context(), dialStub(t, p.grpc), 3); got != 8 || err != nil {
				t.Fatalf("got %v, %v, want 8", got, err)
			}
			p.signal(syscall.SIGTERM)
			if err := <-p.exit; err != nil {
				t.Fatalf("%v\n%s", err, p.log)
			}
			if err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					t.Errorf("the server wrote '%s'", path)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
