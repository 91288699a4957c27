package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"tutti/runtimes"
)

// backendExamples are the repositories of the backends' two-input models.
const backendExamples = "../examples/backends"

// TestBackends runs the cases of backend_cases.py with each client: one server has the
// two-input model of every backend, in clear text and with TLS. A model whose runtime is
// not here is skipped with the command that fetches it.
func TestBackends(t *testing.T) {
	t.Parallel()
	packages := clientPackages.require(t)
	certificates := writeCertificates(t)
	m := &models{root: t.TempDir(), env: []string{"PYTHONPATH=" + packages}} // workers in Python find numpy where the clients do
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

// backendFlags are the repositories and the libraries that lie in the project's own folder.
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
	folder := filepath.Join("..", runtimes.Folder)
	for _, r := range runtimes.List() {
		if os.Getenv(r.Env()) != "" {
			continue
		}
		if path, err := runtimes.Find(r.Name, folder); err == nil {
			flags = append(flags, "--backend-config="+r.Name+",library-path="+path)
		}
	}
	return flags
}
