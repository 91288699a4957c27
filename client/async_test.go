package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

var startedHTTP = regexp.MustCompile(`Started HTTPService at ([^"\s]+)`)

// tuttiServe starts the program tutti with the models quick and endless, which takes ten minutes, and returns its URL.
func tuttiServe(t *testing.T, args ...string) string {
	t.Helper()
	root := t.TempDir()
	for model, delay := range map[string]string{"quick": "0", "endless": "600000"} {
		if err := os.MkdirAll(filepath.Join(root, model, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		text := `backend: "identity" max_batch_size: 16
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
parameters { key: "execute_delay_ms" value { string_value: "` + delay + `" } }`
		if err := os.WriteFile(filepath.Join(root, model, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(preparedtest.Program(t, "program", "tutti"), append([]string{
		"serve", "--model-repository", root, "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
	}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if m := startedHTTP.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return "http://" + m[1]
		}
	}
	t.Fatalf("tutti serve ended: %s", &text)
	return ""
}

// asyncRequest is a request of two rows.
func asyncRequest(model string) *client.Request {
	return &client.Request{Model: model, ID: "7", Inputs: []client.Tensor{client.Of("INPUT0", []int64{2, 1}, int32(41), 42)}}
}

// refused checks that err is an *Error.
func refused(t *testing.T, err error, status, text string) {
	t.Helper()
	if e, ok := errors.AsType[*client.Error](err); !ok || !strings.HasPrefix(e.Status, status) || !strings.Contains(e.Text, text) {
		t.Errorf("%v, expected status %s with %q", err, status, text)
	}
}

// TestInferAsync sends asynchronous requests to a server with jobs: results, errors and cancellations.
func TestInferAsync(t *testing.T) {
	t.Parallel()
	url := tuttiServe(t, "--jobs=true", "--data-dir", t.TempDir(), "--temporal-program", preparedtest.Program(t, "temporal", "tutti-temporal"))
	for _, asJSON := range []bool{false, true} {
		c := client.NewHTTP(url, &client.HTTPOptions{JSON: asJSON})
		a, err := c.InferAsync(t.Context(), asyncRequest("quick"))
		for err != nil && strings.HasPrefix(err.Error(), "503") { // Temporal starts
			a, err = c.InferAsync(t.Context(), asyncRequest("quick"))
		}
		if err != nil || a.ID == "" {
			t.Fatalf("%+v, %v", a, err)
		}
		st, err := c.Async(a.ID).Wait(t.Context()) // as another process does
		if err != nil || st.State != job.Succeeded || st.Code != 200 || st.ID != a.ID {
			t.Errorf("%+v, %v", st, err)
		}
		resp, err := a.Result(t.Context())
		if err != nil || resp.ID != "7" || resp.Model != "quick" {
			t.Fatalf("%+v, %v", resp, err)
		}
		if got, err := client.Values[int32](resp.Output("OUTPUT0")); err != nil || len(got) != 2 || got[1] != 42 {
			t.Errorf("%v, %v", got, err)
		}
		if err = a.Cancel(t.Context()); err != nil { // removes the result
			t.Error(err)
		}
		_, err = a.Result(t.Context())
		refused(t, err, "404", a.ID)
		_, err = a.Wait(t.Context())
		refused(t, err, "404", a.ID)
		cancelled(t, c)
		_, err = c.InferAsync(t.Context(), asyncRequest("none"))
		refused(t, err, "40", "'none'")
		if err = c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// cancelled cancels a request that is executed.
func cancelled(t *testing.T, c *client.HTTP) {
	t.Helper()
	a, err := c.InferAsync(t.Context(), asyncRequest("endless"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Result(t.Context())
	refused(t, err, "409", "expected one that has ended")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = a.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", err)
	}
	if err = a.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	st, err := a.Wait(t.Context())
	if err != nil || st.State != job.RequestCancelled {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = a.Result(t.Context())
	refused(t, err, "410", "was cancelled")
}

// TestInferAsyncWithoutJobs has the result at once.
func TestInferAsyncWithoutJobs(t *testing.T) {
	t.Parallel()
	c := client.NewHTTP(tuttiServe(t), nil)
	a, err := c.InferAsync(t.Context(), asyncRequest("quick"))
	if err != nil || a.ID != "" {
		t.Fatalf("%+v, %v", a, err)
	}
	if st, err := a.Wait(t.Context()); err != nil || st.State != job.Succeeded || st.Model != "quick" {
		t.Errorf("%+v, %v", st, err)
	}
	if resp, err := a.Result(t.Context()); err != nil || resp.Output("OUTPUT0") == nil || a.Cancel(t.Context()) != nil {
		t.Errorf("%+v, %v", resp, err)
	}
}
