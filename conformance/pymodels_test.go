package conformance_test

import (
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestPythonModels runs the cases of python_cases.py with each client, against the models of the python backend's
// tests.
func TestPythonModels(t *testing.T) { //nolint:tparallel // each client has the models for itself
	t.Parallel()
	packages := clientPackages.require(t)
	interpreter := "--backend-config=python,python-runtime=" + preparedtest.Runtime(t, "python")
	root, err := filepath.Abs("../backends/python/testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	at := serve(t, &models{root: root}, interpreter, "--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false")
	for _, flavour := range flavours {
		t.Run(flavour, func(t *testing.T) {
			runSuite(t, packages, []string{"--flavour", flavour, "--variant", "python", "--http", at.http, "--grpc", at.grpc, "--metrics", at.metrics})
		})
	}
}
