package infer_test

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/core/infer"
)

// echo is an Inferer that responds to every request without outputs.
type echo struct{}

func (echo) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	resp := infer.NewResponse()
	resp.ID, resp.Model, resp.Version = req.ID, req.Model, 1
	req.Release() // Submit owns the request
	sink.Send(resp)
	sink.Close(nil)
}

// ExampleCall submits a request and waits for its response.
func ExampleCall() {
	var service infer.Inferer = echo{}
	req := infer.NewRequest()
	req.ID, req.Model = "r1", "digits"
	call := infer.NewCall()
	service.Submit(context.Background(), req, call)
	resp, err := call.Wait()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Release()
	fmt.Println(resp.ID, resp.Model, resp.Version)
	// Output: r1 digits 1
}
