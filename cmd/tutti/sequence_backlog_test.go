package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// TestSequenceBacklog checks that a request's timeout applies in the backlog while the only slot is taken, that a
// second start ends the sequence with a warning in the log, and that an idle sequence loses its slot.
func TestSequenceBacklog(t *testing.T) {
	t.Parallel()
	a, log := serveLogged(t, components(), "--model-repository="+sequenceModels(t))
	stub := dialStub(t, a.grpc)
	try := func(one sequenceRequest) string { return outcome(stub.ModelInfer(t.Context(), one.message())) }
	if got := try(sequenceRequest{model: "narrow", id: 1, start: true, v: 5}); got != "5" {
		t.Fatal(got)
	}
	for over, got := range map[string]string{
		"gRPC": try(sequenceRequest{model: "narrow", id: 2, start: true, timeout: 1000, v: 1}),
		"HTTP": func() string {
			_, text := post(t, "http://"+a.http+"/v2/models/narrow/infer", sequenceRequest{model: "narrow", id: 3, start: true, timeout: 1000, v: 1}.body())
			return short(text)
		}(),
	} {
		if got != "timeout of the corresponding sequence has been expired" {
			t.Errorf("over %s: %s", over, got)
		}
	}
	if got := try(sequenceRequest{model: "narrow", id: 1, start: true, v: 6}); got != "6" {
		t.Errorf("a conflict: %s", got)
	}
	const conflict = "sequence 1 for model 'narrow' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
	if !strings.Contains(log.String(), conflict) {
		t.Errorf("the log lacks %q:\n%s", conflict, log)
	}
	// An idle sequence of this model loses the only slot after a millisecond.
	if got := try(sequenceRequest{model: "hasty", id: 1, start: true, v: 5}); got != "5" {
		t.Fatal(got)
	}
	if got := try(sequenceRequest{model: "hasty", id: 2, start: true, end: true, v: 7}); got != "7" {
		t.Errorf("behind an idle sequence: %s", got)
	}
	if got := try(sequenceRequest{model: "hasty", id: 1, v: 5}); !strings.Contains(got, "must specify the START flag") {
		t.Errorf("an idle sequence went on: %s", got)
	}
}

// TestBacklogHook checks that nothing executes until as many requests of sequences without a slot wait as
// TRITONSERVER_BACKLOG_DELAY_SCHEDULER says. It is not parallel, because it sets an environment variable.
func TestBacklogHook(t *testing.T) {
	t.Setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")
	a := serve(t, "--model-repository="+sequenceModels(t))
	stream, err := dialStub(t, a.grpc).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(a sequenceRequest) {
		a.model = "narrow"
		if err := stream.Send(a.message()); err != nil {
			t.Fatal(err)
		}
	}
	send(sequenceRequest{id: 1, start: true, end: true, v: 1})
	send(sequenceRequest{id: 2, start: true, v: 2})
	const waiting, none = `nv_inference_pending_request_count{model="narrow",version="1"} 2`, `nv_inference_exec_count{model="narrow",version="1"} 0`
	for text := ""; !strings.Contains(text, waiting); {
		if text = metrics(t, a); strings.Contains(text, waiting) && !strings.Contains(text, none) {
			t.Error("something ran before its time")
		}
	}
	send(sequenceRequest{id: 2, end: true, v: 1})
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for want := range 3 {
		m, err := stream.Recv()
		if got := outcome(m.GetInferResponse(), err); got != strconv.Itoa(want+1) {
			t.Errorf("response %d is %s %s", want+1, got, m.GetErrorMessage())
		}
	}
}

func metrics(t *testing.T, a addresses) string {
	t.Helper()
	resp, err := http.Get("http://" + a.metrics + "/metrics") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSequenceCancelled checks that clients may cancel requests of their sequences, queued or in the backlog,
// without an effect on other sequences.
func TestSequenceCancelled(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t))
	stub := dialStub(t, a.grpc)
	if got := outcome(stub.ModelInfer(t.Context(), sequenceRequest{model: "narrow", id: 1, start: true, v: 5}.message())); got != "5" {
		t.Fatal(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const waiting = `nv_inference_pending_request_count{model="narrow",version="1"} 8`
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			got := outcome(stub.ModelInfer(ctx, sequenceRequest{model: "narrow", id: 10 + i, start: true, v: 1}.message()))
			if got != "context canceled" {
				t.Errorf("cancelled: %s", got)
			}
		})
	}
	for !strings.Contains(metrics(t, a), waiting) {
		continue
	}
	cancel()
	wg.Wait()
	cancelsFollowers(t, a, stub)
	if got := outcome(stub.ModelInfer(t.Context(), sequenceRequest{model: "narrow", id: 1, end: true, v: 7}.message())); got != "12" {
		t.Errorf("the sequence that has the slot: %s", got)
	}
	// No request of the backlog has started: the slot is free, and the sequences are unknown.
	if got := outcome(stub.ModelInfer(t.Context(), sequenceRequest{model: "narrow", id: 30, start: true, end: true, v: 4}.message())); got != "4" {
		t.Errorf("after them: %s", got)
	}
	if got := outcome(stub.ModelInfer(t.Context(), sequenceRequest{model: "narrow", id: 12, v: 4}.message())); !strings.Contains(got, "must specify the START flag") {
		t.Errorf("a cancelled sequence went on: %s", got)
	}
}

// cancelsFollowers checks that cancelling the first request of a sequence in the backlog also cancels the second
// one, whose client still waits.
func cancelsFollowers(t *testing.T, a addresses, stub inference.GRPCInferenceServiceClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	for i, ctx := range []context.Context{ctx, t.Context()} {
		go func() {
			_, err := stub.ModelInfer(ctx, sequenceRequest{model: "narrow", id: 40, start: i == 0, v: 1}.message())
			ends <- err
		}()
		waiting := `nv_inference_pending_request_count{model="narrow",version="1"} ` + strconv.Itoa(i+1)
		for !strings.Contains(metrics(t, a), waiting) {
			continue
		}
	}
	cancel()
	for range 2 {
		if err := <-ends; status.Code(err) != codes.Canceled {
			t.Errorf("a request of a cancelled sequence ended as %v", err)
		}
	}
}
