package conformance_test

import (
	"path/filepath"
	"testing"
)

// TestPythonModels runs the cases of python_cases.py with each client, against the models
// that the python backend is tested with. Their workers find numpy where the clients do.
func TestPythonModels(t *testing.T) { //nolint:paralleltest // it sets what its server inherits
	packages := clientPackages.require(t)
	t.Setenv("PYTHONPATH", packages)
	root, err := filepath.Abs("../backends/python/testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	at := serve(t, &models{root: root}, "--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false")
	for _, flavour := range flavours {
		t.Run(flavour, func(t *testing.T) {
			runSuite(t, packages, []string{"--flavour", flavour, "--variant", "python", "--http", at.http, "--grpc", at.grpc, "--metrics", at.metrics})
		})
	}
}
