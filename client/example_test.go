package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tutti-server/tutti/client"
)

// A tensor has its elements in row-major order.
func ExampleOf() {
	t := client.Of("MATRIX", []int64{2, 3}, int64(1), 2, 3, 4, 5, 6)
	values, err := client.Values[int64](&t)
	fmt.Println(t.DType, t.Shape, values, err)
	// Output: INT64 [2 3] [1 2 3 4 5 6] <nil>
}

// Text makes a tensor of type BYTES.
func ExampleText() {
	t := client.Text("TEXT", []int64{2, 1}, "hello", "world")
	texts, err := t.Strings()
	fmt.Println(t.DType, t.Shape, texts, err)
	// Output: BYTES [2 1] [hello world] <nil>
}

// ParseURL accepts HOST:PORT as the address of an HTTP port.
func ExampleParseURL() {
	for _, text := range []string{"127.0.0.1:8000", "grpcs://models.example:8001", "ftp://models.example"} {
		u, err := client.ParseURL(text)
		fmt.Println(u, err != nil)
	}
	// Output:
	// http://127.0.0.1:8000 false
	// grpcs://models.example:8001 false
	// <nil> true
}

// A request that takes long is executed by a server with --jobs while the client does other things, or ends: another process finds the
// result with the ID.
func ExampleHTTP_InferAsync() {
	ctx := context.Background()
	c := client.NewHTTP("http://127.0.0.1:8000", nil)
	a, err := c.InferAsync(ctx, &client.Request{Model: "rank", Inputs: []client.Tensor{client.Of("SCORES", []int64{1, 4}, float32(3), 0, 4, 0)}})
	if err != nil {
		panic(err)
	}
	fmt.Println("request", a.ID)
	st, err := a.Wait(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(st.State, "after", st.Ended.Sub(st.Created))
	resp, err := a.Result(ctx)
	if err != nil { // a failed request has the error that Infer returns
		panic(err)
	}
	fmt.Println(client.Values[float32](resp.Output("VALUES")))
}

// An error of the server has its status and its text.
func ExampleError() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":"Request for unknown model: 'ghost' is not found"}`))
	}))
	defer s.Close()
	c, err := client.Dial(s.URL)
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Infer(context.Background(), &client.Request{Model: "ghost"})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Status)
		fmt.Println(refused.Text)
	}
	// Output:
	// 404 Not Found
	// Request for unknown model: 'ghost' is not found
}
