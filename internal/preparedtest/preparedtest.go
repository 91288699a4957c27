// Package preparedtest finds what tests need and do not make themselves: runtimes, models, programs and packages.
//
// No test fetches or builds such a need, since that would count as the test's own time. make test does so before
// (scripts/prepare-tests) and says in a variable for each need where it is: TUTTI_TEST_OPENVINO=PATH. A need with a
// variable must be there: what is wrong with it fails the test. Without the variable, as when go test is run by hand,
// the need is looked for where make would have put it, and the test is skipped where it is not.
package preparedtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/runtimes"
)

// Variable returns the environment variable that says where a need is.
func Variable(need string) string {
	return "TUTTI_TEST_" + strings.ToUpper(strings.ReplaceAll(need, "-", "_"))
}

// Path returns where a need is: what its variable says, or else what find finds. It skips the test when find fails.
func Path(tb testing.TB, need string, find func() (string, error)) string {
	tb.Helper()
	path := os.Getenv(Variable(need))
	if path == "" {
		found, err := find()
		if err != nil {
			tb.Skipf("no %s: %v", need, err)
		}
		return found
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%s names what is not there: %v", Variable(need), err)
	}
	return path
}

// Skip skips a test that cannot use a need, and fails it where the need was prepared.
func Skip(tb testing.TB, need string, reason any) {
	tb.Helper()
	if path := os.Getenv(Variable(need)); path != "" {
		tb.Fatalf("%s is prepared in '%s' and of no use: %v", need, path, reason)
	}
	tb.Skip(reason)
}

// Root returns the module's folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "prepare-tests")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the test does not run in the module's folder")
		}
		dir = parent
	}
}

// Find returns the library of a runtime: that of its own variable, of the module's folder of runtimes, or of the user's
// cache.
func Find(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	explicit := filepath.Join(root, runtimes.Folder)
	for _, r := range runtimes.List() {
		if r.Name == name && os.Getenv(r.Env()) != "" {
			explicit = ""
		}
	}
	if path, err := runtimes.Find(name, explicit); err == nil {
		return path, nil
	}
	return runtimes.Find(name, "")
}

// Runtime returns the library of a runtime; a need of the runtime's name.
func Runtime(tb testing.TB, name string) string {
	tb.Helper()
	return Path(tb, name, func() (string, error) { return Find(name) })
}

// Script returns a need that a script of scripts/ prepares in the user's cache, given its name and arguments. The script
// only looks: LOOK has it fail instead of fetching.
func Script(tb testing.TB, need string, script ...string) string {
	tb.Helper()
	return Path(tb, need, func() (string, error) {
		root, err := Root()
		if err != nil {
			return "", err
		}
		var stderr bytes.Buffer
		cmd := exec.Command(filepath.Join(root, "scripts", script[0]), script[1:]...) //nolint:gosec,noctx // a test names it; it ends at once
		cmd.Env, cmd.Stderr = append(os.Environ(), "LOOK=1"), &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", errors.New(strings.TrimSpace(stderr.String()) + ": run scripts/" + strings.Join(script, " "))
		}
		return strings.TrimSpace(string(out)), nil
	})
}
