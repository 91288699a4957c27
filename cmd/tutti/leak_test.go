package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/client"
)

// TestNoLeaks checks that a server leaves no goroutine behind. It is not parallel, because it would count the
// goroutines of other tests.
func TestNoLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Run("served", func(t *testing.T) {
		a := serve(t, "--model-repository="+examplesDir+"/parallel", "--backend-config", "onnxruntime,library-path="+requireRuntime(t))
		for _, url := range []string{"http://" + a.http, "grpc://" + a.grpc} {
			c, err := client.Dial(url)
			if err != nil {
				t.Fatal(err)
			}
			in := client.Of("INPUT0", []int64{1, 2}, int32(1), 2)
			if _, err := c.Infer(t.Context(), &client.Request{Model: "parallel", Inputs: []client.Tensor{in}}); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	goleak.VerifyNone(t, ignore)
}
