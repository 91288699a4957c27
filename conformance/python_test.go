package conformance_test

import (
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// prepared is a folder that scripts/prepare-conformance fills, outside the tree.
type prepared string

const (
	clientPackages prepared = "clients"
	perfPackages   prepared = "perf"
)

// require returns the folder.
func (p prepared) require(t *testing.T) string {
	t.Helper()
	return preparedtest.Script(t, "conformance-"+string(p), "prepare-conformance", string(p))
}
