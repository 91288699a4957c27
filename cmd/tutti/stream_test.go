package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tutti/client"
)

var readmeStream = regexp.MustCompile(`(?s)\$ curl -sN localhost:8000(\S+) -d '(.*?)'\n(.*?)` + "```")

// TestStreamExample has the models of the streaming example answer over HTTP, as the
// README shows it, and over gRPC.
//
// shows: generate_stream
func TestStreamExample(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository=../../examples/stream")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := readmeStream.FindStringSubmatch(string(readme))
	if m == nil {
		t.Fatal("README.md has no streamed request with its answers")
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
		t.Errorf("%s (-README.md +got):\n%s", resp.Header, diff)
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
