package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLogReaderGone checks that the server keeps running when the reader of its log exits.
func TestLogReaderGone(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path: exe, Args: append([]string{"tutti", "serve", "--model-repository", t.TempDir()}, freePorts...),
		Env: append(os.Environ(), "GORACE="+raceOptions), Stdout: write, Stderr: write, WaitDelay: time.Minute,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	_ = write.Close()
	for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), "Started Metrics Service"); {
		continue
	}
	_ = log.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server, which logs that it stops, ended with: %v", err)
	}
}
