package conformance_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// fetchLimit bounds the making of an environment of Python packages.
const fetchLimit = 10 * time.Minute

// environment is a folder that a requirements file fills, and how to fill it by hand.
type environment struct{ path, command string }

// newEnvironment names the environment after the content of the requirements, in the
// user's cache.
func newEnvironment(requirements string) (*environment, error) {
	list, err := os.ReadFile(requirements)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(requirements)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(list)
	name := filepath.Base(requirements)
	path := filepath.Join(cache, "tutti", name[:len(name)-len(filepath.Ext(name))]+"-"+hex.EncodeToString(sum[:8]))
	return &environment{path: path, command: "python3 -m venv " + path + " && " + path + "/bin/pip install --require-hashes -r " + absolute + " && touch " + path + "/complete"}, nil
}

// make runs the command unless it ran to its end before; processes take turns.
func (e *environment) make(ctx context.Context) ([]byte, error) {
	if err := os.MkdirAll(e.path, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockedfile.MutexAt(e.path + ".lock").Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(e.path, "complete")); err == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", e.command)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.Bytes(), err
}

// prepared is an environment that is ready, or why it is not.
type prepared struct {
	env *environment
	out []byte
	err error
}

// clientPackages is the environment of testdata/clients.txt.
var clientPackages = sync.OnceValue(func() (p prepared) {
	if p.env, p.err = newEnvironment("testdata/clients.txt"); p.err == nil {
		p.out, p.err = p.env.make(context.Background())
	}
	return p
})

// require skips a test whose environment cannot be had here.
func (p prepared) require(t *testing.T) *environment {
	t.Helper()
	switch {
	case p.env == nil:
		t.Fatal(p.err)
	case p.err != nil:
		t.Skipf("the packages cannot be fetched here (%v); run: %s\n%s", p.err, p.env.command, p.out)
	}
	return p.env
}

// requirePython returns a Python with the packages of the client suites. The suites are
// long: a short run leaves them out.
func requirePython(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the client suites are left out of a short run")
	}
	return filepath.Join(clientPackages().require(t).path, "bin", "python")
}
