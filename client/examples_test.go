package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// exampleServer starts a server whose model echo returns its inputs, and returns its address. stop ends it.
func exampleServer(overGRPC bool) (address string, stop func()) {
	echo, alloc := servertest.NewEcho(), tensor.NewPool()
	var s interface {
		Serve(l net.Listener) error
		Shutdown(ctx context.Context) error
	} = httpapi.New(httpapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"})
	if overGRPC {
		s = grpcapi.New(grpcapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // an example's own socket
	if err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return l.Addr().String(), func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-done); err != nil {
			panic(err)
		}
	}
}

// A request to a model, and the elements of its response.
func ExampleDial() {
	address, stop := exampleServer(false)
	defer stop()
	c, err := client.Dial(address) // or grpc://HOST:PORT
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	resp, err := c.Infer(context.Background(), &client.Request{
		Model: "echo", ID: "7", Inputs: []client.Tensor{client.Of("X", []int64{2}, float32(1), 2.5)},
	})
	if err != nil {
		panic(err)
	}
	values, err := client.Values[float32](resp.Output("X"))
	fmt.Println(resp.ID, resp.Output("X").Shape, values, err)
	// Output: 7 [2] [1 2.5] <nil>
}

// The responses of a decoupled model as they come, with plain JSON over HTTP.
func ExampleHTTP_GenerateStream() {
	address, stop := exampleServer(false)
	defer stop()
	c := client.NewHTTP("http://"+address, nil)
	defer func() { _ = c.Close() }()
	req := &client.GenerateRequest{Model: "repeat", Inputs: map[string]any{"IN": []int{4, 5, 6}}}
	err := c.GenerateStream(context.Background(), req, func(g *client.Generated) error {
		fmt.Println(string(g.Outputs["OUT"]))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 4
	// 5
	// 6
	// <nil>
}

// A stream of requests over gRPC: here, of one sequence.
func ExampleGRPC_OpenStream() {
	address, stop := exampleServer(true)
	defer stop()
	c, err := client.NewGRPC(address, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	s, err := c.OpenStream(context.Background())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()
	for i := range 3 {
		err := s.Send(&client.Request{
			Model: "echo", Inputs: []client.Tensor{client.Of("X", []int64{1}, float32(i))}, Sequence: &client.Sequence{ID: 42, Start: i == 0, End: i == 2},
		})
		if err != nil {
			panic(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		panic(err)
	}
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		values, err := client.Values[float32](resp.Output("X"))
		fmt.Println(values, err)
	}
	// Output:
	// [0] <nil>
	// [1] <nil>
	// [2] <nil>
}
