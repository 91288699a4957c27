package tutti_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/steps"
)

// writeModel writes a repository with a model "copy" and returns its folder.
func writeModel() (string, error) {
	root, err := os.MkdirTemp("", "models")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(root, "copy", "1"), 0o755); err != nil {
		return "", err
	}
	return root, os.WriteFile(filepath.Join(root, "copy", "config.pbtxt"), []byte(`
		backend: "identity"
		input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
		output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]`), 0o600)
}

// A server in this process, from the start to the end.
func Example() {
	ctx := context.Background()
	root, err := writeModel()
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()

	s, err := tutti.Open(ctx, tutti.Settings{
		Args: []string{
			"--model-repository=" + root, "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
		},
		Components: tutti.Components{
			Backends: func(*steps.Registry) []backends.Factory { return []backends.Factory{identity.NewFactory()} },
		},
	})
	if err != nil {
		panic(err)
	}
	if err := s.Start(); err != nil {
		panic(err)
	}
	c, err := client.Dial("http://" + s.HTTPAddress())
	if err != nil {
		panic(err)
	}
	resp, err := c.Infer(ctx, &client.Request{
		Model:  "copy",
		Inputs: []client.Tensor{client.Of("INPUT0", []int64{3}, int32(1), 2, 3)},
	})
	if err != nil {
		panic(err)
	}
	values, err := client.Values[int32](resp.Output("OUTPUT0"))
	fmt.Println(s.Models()[0].Name, s.Ready(), values, err)
	if err := c.Close(); err != nil {
		panic(err)
	}
	fmt.Println(s.Close(ctx))
	// Output:
	// copy true [1 2 3] <nil>
	// <nil>
}
