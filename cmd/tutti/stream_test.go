package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tutti/client"
)

// TestStreamExample has the models of the streaming example answer over HTTP and gRPC.
//
// shows: generate_stream
func TestStreamExample(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository=../../examples/stream")
	resp, err := http.Post("http://"+a.http+"/v2/models/repeat_int32/generate_stream", "application/json", //nolint:noctx // ends with the server
		strings.NewReader(`{"IN": [4, 5], "DELAY": [0, 1], "WAIT": 0}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := `data: {"IDX":0,"OUT":4,"model_name":"repeat_int32","model_version":"1"}` + "\n\n" +
		`data: {"IDX":1,"OUT":5,"model_name":"repeat_int32","model_version":"1"}` + "\n\n"
	if diff := cmp.Diff(want, string(events)); diff != "" || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("%s (-want +got):\n%s", resp.Header, diff)
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
}
