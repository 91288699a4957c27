package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/client"
)

// TestFileSizeLimit checks that the server keeps running when a file that it writes reaches the limit on the size of files
// (ulimit -f): by default SIGXFSZ would end it.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "m", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`
	if err := os.WriteFile(filepath.Join(dir, "m", "config.pbtxt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	traces := filepath.Join(t.TempDir(), "traces.json")
	args := append([]string{
		"tutti", "serve", "--model-repository", dir, "--cuda-driver=" + noDriver,
		"--trace-config=triton,file=" + traces, "--trace-config=mode=triton", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1",
	}, freePorts...)
	log := newWatch()
	cmd := &exec.Cmd{Path: exe, Args: args, Env: append(os.Environ(), "GORACE="+raceOptions), Stdout: log, Stderr: log, WaitDelay: time.Minute}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		log.end()
	}()
	a, ok := log.started()
	if !ok {
		t.Fatalf("the server did not start:\n%s", log)
	}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1024, Max: 1024}, nil); err != nil {
		t.Fatal(err)
	}
	c := client.NewHTTP("http://"+a.http, nil)
	for range 50 {
		in := client.Of("INPUT0", []int64{1}, float32(1))
		if _, err := c.Infer(t.Context(), &client.Request{Model: "m", Inputs: []client.Tensor{in}}); err != nil {
			t.Fatalf("a request whose trace cannot be written: %v\n%s", err, log)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// It says at its end that traces are lost.
	if err := <-ended; !cmd.ProcessState.Exited() {
		t.Errorf("the server ended with %v:\n%s", err, log)
	}
	if s, err := os.Stat(traces); err != nil || s.Size() != 1024 || !strings.Contains(log.String(), "file too large") || !strings.Contains(log.String(), "raise the limit (ulimit -f, LimitFSIZE of systemd), or set another trace_file") {
		t.Errorf("the file of the traces is %v (%v), expected the 1024 bytes of the limit, and a line in the log that says what to do:\n%s", s, err, log)
	}
}
