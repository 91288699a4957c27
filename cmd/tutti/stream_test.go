package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
)

var pageStream = regexp.MustCompile(`(?s)\$ curl -sN localhost:8000(\S+) -d '(.*?)'\n(.*?)` + "```")

// TestStreamExample checks the streaming example over HTTP, as docs/streams.md shows it, and over gRPC.
// shows: generate_stream
func TestStreamExample(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository=../../examples/stream")
	page, err := os.ReadFile(docsDir + "streams.md")
	if err != nil {
		t.Fatal(err)
	}
	m := pageStream.FindStringSubmatch(string(page))
	if m == nil {
		t.Fatal("docs/streams.md has no streamed request with its responses")
	}
	resp, err := http.Post("http://"+a.http+m[1], "application/json", strings.NewReader(m[2])) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m[3], string(events)); diff != "" || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("%s (-streams.md +got):\n%s", resp.Header, diff)
	}

	c := dialGRPC(t, a.grpc)
	defer func() { _ = c.Close() }()
	var got []int32
	req := &client.Request{Model: "square_int32", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(3))}}
	err = c.Stream(t.Context(), req, func(r *client.Response) error {
		out, err := client.Values[int32](r.Output("OUT"))
		got = append(got, out...)
		return err
	})
	if diff := cmp.Diff([]int32{3, 3, 3}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	var totals []int64
	req = &client.Request{Model: "moving_total", Inputs: []client.Tensor{
		client.Of("IN", []int64{5}, []int32{1, 2, 3, 4, 5}...), client.Of("DELAY", []int64{5}, make([]uint32, 5)...), client.Of("WAIT", []int64{1}, uint32(0)),
	}}
	err = c.Stream(t.Context(), req, func(r *client.Response) error {
		out := r.Output("TOTAL")
		if out == nil { // the end
			return nil
		}
		total, err := client.Values[int64](out)
		totals = append(totals, total...)
		return err
	})
	if diff := cmp.Diff([]int64{6, 9, 12}, totals); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestStreamEnsemble checks an ensemble of two decoupled steps.
// shows: ensembles.decoupled generate_stream
func TestStreamEnsemble(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository=../../examples/stream")
	type response struct {
		Out, Idx int32
	}
	want := []response{{2, 0}, {2, 0}, {3, 2}, {3, 2}, {3, 2}, {1, 3}}

	resp, err := http.Post("http://"+a.http+"/v2/models/repeat_square/generate_stream", "application/json", //nolint:noctx // ends with the server
		strings.NewReader(`{"IN":[2,0,3,1],"DELAY":[0,0,0,0],"WAIT":0}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got []response
	for line := range strings.Lines(string(events)) {
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var one response
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("over HTTP (-want +got):\n%s\n%s", diff, events)
	}

	c := dialGRPC(t, a.grpc)
	defer func() { _ = c.Close() }()
	got = nil
	req := &client.Request{Model: "repeat_square", Inputs: []client.Tensor{
		client.Of("IN", []int64{4}, int32(2), int32(0), int32(3), int32(1)),
		client.Of("DELAY", []int64{4}, uint32(0), uint32(0), uint32(0), uint32(0)),
		client.Of("WAIT", []int64{1}, uint32(0)),
	}}
	err = c.Stream(t.Context(), req, func(r *client.Response) error {
		out, err := client.Values[int32](r.Output("OUT"))
		if err != nil {
			return err
		}
		idx, err := client.Values[uint32](r.Output("IDX"))
		if err != nil {
			return err
		}
		got = append(got, response{out[0], int32(idx[0])})
		return nil
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("over gRPC: %v (-want +got):\n%s", err, diff)
	}
}

// TestStreamOrdered checks an ensemble that uses one decoupled model for two steps, with ordered responses: the
// second step's responses wait for the first step to end, which must not wait for them.
func TestStreamOrdered(t *testing.T) {
	t.Parallel()
	const ports = `
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
model_transaction_policy { decoupled: true }
`
	a := serve(t, "--model-repository="+models(t, map[string]string{
		"square": `backend: "square" dynamic_batching { preserve_ordering: true } instance_group { count: 2 }` + ports,
		"squares": `platform: "ensemble"` + ports + `ensemble_scheduling { max_inflight_requests: 1
step { model_name: "square" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "t" } }
step { model_name: "square" model_version: -1 input_map { key: "IN" value: "t" } output_map { key: "OUT" value: "OUT" } } }
`,
	}))
	c := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = c.Close() })
	const n = 12
	var wg sync.WaitGroup
	for range exampleClients {
		wg.Go(func() {
			got := 0
			req := &client.Request{Model: "squares", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(n))}}
			err := c.Stream(t.Context(), req, func(*client.Response) error { got++; return nil })
			if err != nil || got != n*n {
				t.Errorf("%d responses, want %d: %v", got, n*n, err)
			}
		})
	}
	wg.Wait()
}
