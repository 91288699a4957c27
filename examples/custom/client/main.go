// Command client sends a request to the ensemble limited_negated of the server at a URL, and prints the response.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tutti-server/tutti/client"
)

func main() {
	url := "http://127.0.0.1:8000"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	c, err := client.Dial(url)
	if err != nil {
		return err
	}
	resp, err := c.Infer(ctx, &client.Request{
		Model:  "limited_negated",
		Inputs: []client.Tensor{client.Of("X", []int64{1, 3}, float32(-5), 0.5, 7)},
	})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	values, err := client.Values[float32](resp.Output("Y"))
	if err == nil {
		fmt.Println(values)
	}
	return errors.Join(err, c.Close())
}
