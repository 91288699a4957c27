package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
)

const copyConfig = "backend: \"identity\"\ninput { name: \"INPUT0\" data_type: TYPE_INT32 dims: 1 }\noutput { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: 1 }\n"

// benchUntil runs tutti bench, calls end once the server has responded to its requests, and returns what bench printed.
func benchUntil(t *testing.T, stopServer bool) (status int, stdout, stderr string) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "copy", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "copy", "config.pbtxt"), []byte(copyConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	a, _ := serveUntil(serving, t, components(), "--model-repository="+root)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	report := filepath.Join(root, "report.html")
	go func() {
		ended <- cli.Main(ctx, []string{"tutti", "bench", "copy", "--url", a.http, "--warmup", "0s", "--duration", "1h", "--report", report}, &out, &errs, components())
	}()
	c := client.NewHTTP("http://"+a.http, nil)
	repeated(t, "requests of bench", func(ctx context.Context) error {
		list, err := c.Statistics(ctx, "copy")
		if err == nil && list[0].Inference.Success.Count < 100 {
			err = context.DeadlineExceeded
		}
		return err
	})
	_ = c.Close()
	if stopServer {
		stop()
	} else {
		interrupt()
	}
	status = <-ended
	if page, err := os.ReadFile(report); err != nil || !bytes.Contains(page, []byte("</html>")) {
		t.Errorf("the report is not whole: %v", err)
	}
	return status, out.String(), errs.String()
}

// TestBenchInterrupted checks that Ctrl-C prints what was measured until then.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := benchUntil(t, false)
	if status != 0 || !strings.Contains(stdout, "interrupted after") || !strings.Contains(stdout, "8 clients ") {
		t.Errorf("status %d, printed\n%s\n%s", status, stdout, stderr)
	}
}

// TestBenchLostServer checks that a server that ends in the middle is an error, after what was measured until then.
func TestBenchLostServer(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := benchUntil(t, true)
	if status == 0 || !strings.Contains(stdout, "connection refused") || !strings.Contains(stderr, "error: the server is lost") {
		t.Errorf("status %d, printed\n%s\n%s", status, stdout, stderr)
	}
}
