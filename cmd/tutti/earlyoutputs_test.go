package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
)

// TestEarlyOutputsByDoor checks that a stream has a response for each output of an ensemble with early outputs, and a request with one response has all of them.
func TestEarlyOutputsByDoor(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeModel(t, root, "negate", `backend: "native" input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
parameters [ { key: "step" value { string_value: "tensor" } }, { key: "op" value { string_value: "negative" } } ]`)
	writeModel(t, root, "twice", `platform: "ensemble" input { name: "IN" data_type: TYPE_INT32 dims: 1 } output [ { name: "A" data_type: TYPE_INT32 dims: 1 }, { name: "B" data_type: TYPE_INT32 dims: 1 } ]
ensemble_scheduling {
  step { model_name: "negate" model_version: -1 input_map { key: "INPUT" value: "IN" } output_map { key: "OUTPUT" value: "A" } }
  step { model_name: "negate" model_version: -1 input_map { key: "INPUT" value: "A" } output_map { key: "OUTPUT" value: "B" } }
}
parameters { key: "ensemble.early_outputs" value { string_value: "true" } }`)
	a := serve(t, "--model-repository="+root)
	g := dialGRPC(t, a.grpc)
	defer func() { _ = g.Close() }()
	req := &client.Request{Model: "twice", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(7))}}
	names := func(r *client.Response) (list []string) {
		for i := range r.Outputs {
			list = append(list, r.Outputs[i].Name)
		}
		return list
	}
	var streamed [][]string
	err := g.Stream(t.Context(), req, func(r *client.Response) error {
		if n := names(r); n != nil { // the end has no outputs
			streamed = append(streamed, n)
		}
		return nil
	})
	if diff := cmp.Diff([][]string{{"A"}, {"B"}}, streamed); diff != "" || err != nil {
		t.Errorf("stream: %v (-want +got):\n%s", err, diff)
	}
	h := client.NewHTTP("http://"+a.http, nil)
	for door, infer := range map[string]func() (*client.Response, error){
		"HTTP": func() (*client.Response, error) { return h.Infer(t.Context(), req) },
		"gRPC": func() (*client.Response, error) { return g.Infer(t.Context(), req) },
	} {
		r, err := infer()
		if err != nil {
			t.Errorf("%s: %v", door, err)
			continue
		}
		if diff := cmp.Diff([]string{"A", "B"}, names(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", door, diff)
		}
	}
}
