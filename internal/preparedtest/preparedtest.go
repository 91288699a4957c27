// Package preparedtest finds the prerequisites of tests: runtimes, models, programs and packages.
//
// No test downloads or builds a prerequisite, since that time would count as the test's own. make test prepares
// them first (scripts/prepare-tests) and passes the path of each in a variable. For example,
// TUTTI_TEST_OPENVINO=PATH names the OpenVINO library. A prerequisite with a variable must be usable; otherwise the
// test fails. Without the variable, for example in a plain go test, the package looks where make would have put it,
// and skips the test when nothing is there.
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

// Variable returns the name of the environment variable that has the path of a prerequisite.
func Variable(need string) string {
	return "TUTTI_TEST_" + strings.ToUpper(strings.ReplaceAll(need, "-", "_"))
}

// Path returns the path of a prerequisite: the value of its variable, or else the result of find. It skips the test
// when find fails.
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
		tb.Fatalf("%s names a missing path: %v", Variable(need), err)
	}
	return path
}

// Program returns the path of a program that make builds in bin/. It skips the test when the program is not there.
func Program(tb testing.TB, need, name string) string {
	tb.Helper()
	return Path(tb, need, func() (string, error) {
		root, err := Root()
		if err != nil {
			return "", err
		}
		path := filepath.Join(root, "bin", name)
		_, err = os.Stat(path)
		return path, err
	})
}

// Skip skips a test that cannot use a prerequisite, and fails it when its variable is set.
func Skip(tb testing.TB, need string, reason any) {
	tb.Helper()
	if path := os.Getenv(Variable(need)); path != "" {
		tb.Fatalf("%s is prepared in '%s' but unusable: %v", need, path, reason)
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
			return "", errors.New("no parent folder is the module's root, expected scripts/prepare-tests in it")
		}
		dir = parent
	}
}

// Find returns the path of a runtime's library: from the runtime's own variable, the module's folder of runtimes,
// or the user's cache.
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

// Runtime returns the path of a runtime's library. The name of the prerequisite is the runtime's name.
func Runtime(tb testing.TB, name string) string {
	tb.Helper()
	return Path(tb, name, func() (string, error) { return Find(name) })
}

// Script returns the path that a script of scripts/ prints, given its name and arguments. It sets LOOK, with which
// the script looks in the user's cache and fails instead of downloading.
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
