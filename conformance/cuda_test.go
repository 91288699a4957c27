package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestCUDAClients runs the cases of CUDA shared memory with each client, against a server on the checking driver. The clients have
// clients/cudart for NVIDIA's package cuda-python, whose runtime does not start on that driver. The report of the driver, which the
// server writes when it ends, must have no fault.
func TestCUDAClients(t *testing.T) { //nolint:tparallel // regions of one client are in the status of the others
	t.Parallel()
	packages := clientPackages.require(t)
	driver := preparedtest.Script(t, "cuda_driver", "prepare-cuda")
	runtime, err := filepath.Abs("clients/cudart")
	if err != nil {
		t.Fatal(err)
	}
	m := newModels(t)
	m.write(t, "gpu_fp32/config.pbtxt", `
		backend: "sim" parameters { key: "sim.backend" value { string_value: "identity" } } instance_group [{ kind: KIND_GPU gpus: [0] }]
		input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1, -1] }] output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1, -1] }]`)
	report := filepath.Join(t.TempDir(), "report")
	t.Cleanup(func() { checkReport(t, report) }) // after the server's end
	m.env = append(m.env, "TUTTI_CUDA_CHECK_REPORT="+report)
	at := serve(t, m, append([]string{"--allow-client-shm=true", "--model-control-mode=explicit", "--strict-readiness=false", "--cuda-driver=" + driver}, m.loads...)...)
	for _, flavour := range flavours {
		t.Run(flavour, func(t *testing.T) {
			runSuite(t, runtime+string(os.PathListSeparator)+packages, []string{
				"--flavour", flavour, "--variant", "cuda", "--http", at.http, "--grpc", at.grpc, "--metrics", at.metrics,
			}, "TUTTI_CUDA_DRIVER="+driver)
		})
	}
}

// checkReport fails the test when the checking driver found a fault, memory that is held, or no use of it.
func checkReport(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	for _, bad := range []string{`(?m)^fault: `, `(?m)^held [1-9]`, `(?m)^within 0 `, `(?m)^peer 0 `} {
		if regexp.MustCompile(bad).Match(text) {
			t.Errorf("the driver's report has %s:\n%s", bad, text)
		}
	}
}
