// Command echoserver serves models that echo, over HTTP and gRPC on free ports of
// the loopback interface, so that a client written in another language can be run
// against the front ends. It prints the two addresses and ends with its input.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"tutti/core/tensor"
	"tutti/server/grpcapi"
	"tutti/server/httpapi"
	"tutti/server/servertest"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

// run serves until in ends.
func run(in io.Reader, out io.Writer) error {
	e, pool := servertest.NewEcho(), tensor.NewPool()
	h := httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: pool, Name: "tutti", Version: "0"})
	g := grpcapi.New(grpcapi.Settings{Infer: e, Catalog: e, Alloc: pool, Name: "tutti", Version: "0"})
	errs := make(chan error, 2)
	for _, serve := range []func(net.Listener) error{h.Serve, g.Serve} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, l.Addr())
		go func() { errs <- serve(l) }()
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	ctx := context.Background()
	if err := h.Shutdown(ctx); err != nil {
		return err
	}
	if err := g.Shutdown(ctx); err != nil {
		return err
	}
	if n := pool.InUse(); n != 0 {
		return fmt.Errorf("%d bytes of tensors are still held", n)
	}
	return nil
}
