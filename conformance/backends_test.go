package conformance_test

import (
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// backendExamples holds the repositories of the backends' two-input models.
const backendExamples = "../examples/backends"

// TestBackends runs the cases of backend_cases.py with each client. One server has the two-input model of every
// backend, without and with TLS. A model whose runtime is missing is skipped with the command that installs the
// runtime.
func TestBackends(t *testing.T) {
	t.Parallel()
	packages := clientPackages.require(t)
	certificates := writeCertificates(t)
	m := &models{root: t.TempDir()}
	base := append(backendFlags(t), "--exit-on-error=false", "--strict-readiness=false")
	for variant, flags := range map[string][]string{"backends": nil, "backends_tls": tlsFlags(certificates)} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			at := serve(t, m, append(flags, base...)...)
			for _, flavour := range flavours {
				t.Run(flavour, func(t *testing.T) {
					runSuite(t, packages, []string{
						"--flavour", flavour, "--variant", variant, "--http", at.http, "--grpc", at.grpc, "--certificates", certificates,
					})
				})
			}
		})
	}
}

// backendFlags returns the flags of the repositories and of the libraries in the project's folder.
func backendFlags(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(backendExamples, "*", "expected.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no examples in '%s': %v", backendExamples, err)
	}
	var flags []string
	for _, path := range found {
		flags = append(flags, "--model-repository="+filepath.Dir(path))
	}
	if root, err := preparedtest.Root(); err == nil {
		flags = append(flags, "--backend-directory="+filepath.Join(root, "bin", "triton-backends"))
	}
	for _, r := range runtimes.List() {
		if path, err := preparedtest.Find(r.Name); err == nil {
			flags = append(flags, "--backend-config="+r.Name+","+r.Key()+"="+path)
		}
	}
	return flags
}
