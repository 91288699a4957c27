package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/tracing/otlp/otlptest"
)

// pythonCalls holds models that call other models and check the Python API. The tests of backends/python use them
// as well.
const pythonCalls = "../../backends/python/testdata/calls"

// callsTime bounds one case, which may otherwise hang.
const callsTime = 5 * time.Minute

// serving returns the flags of a server with some of these models.
func serving(models ...string) []string {
	flags := []string{"--model-repository=" + pythonCalls, "--model-control-mode=explicit"}
	for _, m := range models {
		flags = append(flags, "--load-model="+m)
	}
	return flags
}

func callOf(model, name string) *client.Request {
	return &client.Request{Model: model, Inputs: []client.Tensor{client.Text("CASE", []int64{1}, name)}}
}

// texts returns the text that a model responds with.
func texts(t *testing.T, c client.Client, model, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callsTime)
	defer cancel()
	resp, err := c.Infer(ctx, callOf(model, name))
	if err != nil {
		t.Fatal(err)
	}
	out := resp.Output("OUT")
	if out == nil || len(out.Data) < 4 {
		t.Fatalf("expected a text, found %+v", resp)
	}
	return string(out.Data[4:]) // the first 4 bytes are the length
}

// TestPythonCalls checks the Python API from inside a model: its own environment, calls of other models, and the
// processes.
func TestPythonCalls(t *testing.T) { //nolint:tparallel // the model has one instance
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile(pythonCalls + "/caller/1/model.py")
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, serving("caller", "plain", "stream", "timed", "two")...)
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	_, cases, _ := strings.Cut(string(text), "class Cases:")
	cases, _, _ = strings.Cut(cases, "\nclass ")
	names := strings.Split(cases, "\n    def ")[1:]
	if len(names) < 15 {
		t.Fatalf("%d cases", len(names))
	}
	for _, name := range names {
		name, _, _ := strings.Cut(name, "(")
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			if got := texts(t, c, "caller", name); got != "fine" {
				t.Errorf("found %q", got)
			}
		})
	}
}

// TestPythonMeeting checks that executions of a decoupled coroutine model overlap: its requests wait for each
// other. An exception after a request's last response is logged.
func TestPythonMeeting(t *testing.T) {
	cudatest.NotAtDevices(t, "the backend sim executes one batch at a time, and these wait for each other")
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a, log := serveLogged(t, components(), serving("meeting", "gate")...)
	c := dialGRPC(t, a.grpc)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), callsTime)
	defer cancel()
	const together = 4
	errs := make([]error, together)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			n := 0
			errs[i] = c.Stream(ctx, &client.Request{Model: "meeting", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(together))}},
				func(*client.Response) error { n++; return nil })
			if errs[i] == nil && n == 0 {
				errs[i] = errors.New("no response")
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	err := c.Stream(ctx, &client.Request{Model: "meeting", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(-1))}}, func(*client.Response) error { return nil })
	if err != nil {
		t.Error(err)
	}
	const want = "ValueError: raised after the last response"
	context.AfterFunc(ctx, log.end)
	if !log.await(func(text string) bool { return strings.Contains(text, want) }) {
		t.Errorf("the log lacks %q:\n%s", want, log)
	}
}

// TestPythonInitialize checks that a model can load and unload others in initialize, and that its client gets the
// response that was sent, not the error or the response that follows.
func TestPythonInitialize(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	a, log := serveLogged(t, components(), append(serving("starter"), "--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS",
		"--trace-config=rate=1", "--trace-config=opentelemetry,url="+otlptest.New(t).HTTP)...)
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	for _, what := range []string{"return", "raise"} {
		if got := texts(t, c, "starter", what); got != "sent" {
			t.Errorf("%s: found %q", what, got)
		}
	}
	if got := texts(t, c, "starter", "context"); !strings.HasPrefix(got, `{"traceparent":"00-`) {
		t.Errorf("the context of a request without one is %q", got)
	}
	for _, want := range []string{"starter_0_0", "ValueError: raised after a response was sent", "model.py("} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}
