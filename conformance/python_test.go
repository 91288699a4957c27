package conformance_test

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// cannotFetch is the exit status of a script that wants a network.
const cannotFetch = 3

// prepared is a folder that scripts/prepare-conformance fills once, and outside the tree.
type prepared func() (folder string, err error)

func prepare(what string) prepared {
	return sync.OnceValues(func() (string, error) {
		var stderr bytes.Buffer
		cmd := exec.Command("../scripts/prepare-conformance", what)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", &fetchError{what: what, err: err, text: stderr.String()}
		}
		return strings.TrimSpace(string(out)), nil
	})
}

// fetchError says why a folder is not there.
type fetchError struct {
	what, text string
	err        error
}

func (e *fetchError) Error() string {
	return e.text + "run where there is a network: scripts/prepare-conformance " + e.what + ": " + e.err.Error()
}

func (e *fetchError) Unwrap() error { return e.err }

var (
	clientPackages = prepare("clients")
	perfPackages   = prepare("perf")
)

// require returns the folder. Suites that need one are long: a short run leaves them
// out, and so does one that cannot fetch.
func (p prepared) require(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out of a short run")
	}
	folder, err := p()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == cannotFetch:
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return folder
}
