package conformance_test

import (
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// prepared is a folder outside the tree that scripts/prepare-conformance fills.
type prepared string

const (
	clientPackages prepared = "clients"
	perfPackages   prepared = "perf"
)

// require returns the folder, or skips the test if it is not prepared.
func (p prepared) require(t *testing.T) string {
	t.Helper()
	return preparedtest.Script(t, "conformance-"+string(p), "prepare-conformance", string(p))
}
