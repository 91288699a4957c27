package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// callingModel calls the model first, once with its output where the model leaves it and once with the output on the host.
const callingModel = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def call(self, x, **more):
        r = pb_utils.InferenceRequest(model_name="first", requested_output_names=["OUTPUT0"], inputs=[pb_utils.Tensor("INPUT0", x)], **more).exec()
        return pb_utils.get_output_tensor_by_name(r, "OUTPUT0")

    def execute(self, requests):
        responses = []
        for r in requests:
            x = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()
            host = self.call(x, preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU))
            there = 0 if self.call(x).is_cpu() else 1
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUT", host.as_numpy() + np.int32(there))]))
        return responses
`

// TestCopiesOfCalls checks, over HTTP and gRPC, that the copies of the tensors of calls from one model to another are in the ledger: it has
// exactly those that the driver has made. The calling model runs on the host, or at the device itself.
func TestCopiesOfCalls(t *testing.T) {
	t.Parallel()
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	root := chainRepo(t)
	const config = "backend: \"python\"\nmax_batch_size: 8\ninput [{ name: \"IN\" data_type: TYPE_INT32 dims: [2] }]\noutput [{ name: \"OUT\" data_type: TYPE_INT32 dims: [2] }]\n"
	for name, text := range map[string]string{"config.pbtxt": config, "1/model.py": callingModel} {
		path := filepath.Join(root, "chain", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, more := range map[string][]string{"at the host": {"--backend-config=sim,except=python"}, "at the device": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c, flags := newDrive(t, 1, 1)
			a := serveWith(t, c, append(append(flags, "--model-repository="+root), more...)...)
			viaHTTP, viaGRPC := client.NewHTTP("http://"+a.http, nil), dialGRPC(t, a.grpc)
			defer func() { _, _ = viaHTTP.Close(), viaGRPC.Close() }()
			const rounds = 3
			for range rounds {
				for _, via := range []client.Client{viaHTTP, viaGRPC} {
					resp, err := via.Infer(t.Context(), &client.Request{Model: "chain", Inputs: []client.Tensor{client.Of("IN", []int64{1, 2}, int32(3), 4)}})
					if err != nil {
						t.Fatal(err)
					}
					got, err := client.Values[int32](resp.Output("OUT"))
					if err != nil || got[0] != 4 || got[1] != 5 {
						t.Errorf("%v, %v; want [4 5]", got, err)
					}
				}
			}
			got := d.compare(t, metricsOf(t, a))
			if n, size := got["within_device copies"], got["within_device bytes"]; n != 2*rounds || size != 2*rounds*8 {
				t.Errorf("%d copies of %d bytes within the device, want %d of %d: those of the outputs that stay there", n, size, 2*rounds, 2*rounds*8)
			}
		})
	}
}
