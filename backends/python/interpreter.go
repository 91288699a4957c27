package python

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// interpreter checks the default interpreter, once. Models with EXECUTION_ENV_PATH use another one.
func (b *backend) interpreter(ctx context.Context) error {
	python := b.python(ctx)
	b.probeOnce.Do(func() { b.version, b.probeErr = probe(ctx, python) })
	return b.probeErr
}

// python returns the name or path of the default interpreter. It is searched for once.
func (b *backend) python(ctx context.Context) string {
	b.findOnce.Do(func() {
		if b.set.python == "" {
			b.set.python = findInterpreter(ctx)
		}
		if abs, err := filepath.Abs(b.set.python); err == nil && strings.Contains(b.set.python, "/") {
			b.set.python = abs
		}
	})
	return b.set.python
}

// prepare checks a fetched interpreter.
func prepare(ctx context.Context, path string, _ io.Writer) error {
	_, err := probe(ctx, path)
	return err
}

// findInterpreter returns the default interpreter when no setting names one.
func findInterpreter(ctx context.Context) string {
	if p := os.Getenv(interpreterVariable); p != "" {
		return p
	}
	var beside []string
	if dir, err := os.Getwd(); err == nil {
		beside = append(beside, dir)
	}
	if exe, err := os.Executable(); err == nil {
		beside = append(beside, filepath.Dir(exe))
	}
	for _, dir := range beside {
		p := filepath.Join(dir, ".venv", "bin", "python")
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if fetched, ok := runtimes.Fetched(runtimeName); ok {
		return fetched
	}
	// An environment in the user's cache was fetched for another folder, so the system's interpreter precedes it.
	fetched, err := runtimes.Find(runtimeName, "")
	if err != nil || hasNumpy(ctx, systemPython) {
		return systemPython
	}
	return fetched
}

// hasNumpy reports whether an interpreter finds numpy. It does not import numpy, which would take several times as long.
func hasNumpy(ctx context.Context, python string) bool {
	const look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)"
	return exec.CommandContext(context.WithoutCancel(ctx), python, "-c", look).Run() == nil //nolint:gosec // the interpreter is a constant
}

// probe checks that an interpreter exists, is 3.9 or later, and has numpy. version describes it.
func probe(ctx context.Context, python string) (version string, err error) {
	path, err := exec.LookPath(python)
	if err != nil {
		return "", status.Errorf(status.Unavailable, "the python interpreter '%s' is missing: install Python 3.9 or later, "+
			"or name it by '--backend-config=python,python-runtime=PATH' or %s", python, interpreterVariable)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-c", "import sys, platform, numpy; print(sys.hexversion, platform.python_version(), numpy.__version__)") //nolint:gosec // the interpreter is a setting
	out, err := cmd.Output()
	if err != nil {
		return "", errNumpy(path, python, err)
	}
	f := strings.Fields(string(out))
	if len(f) != 3 {
		return "", status.Errorf(status.Unavailable, "'%s' is no python interpreter: it printed '%s'", path, strings.TrimSpace(string(out)))
	}
	if v, _ := strconv.Atoi(f[0]); v < 0x03090000 {
		return "", status.Errorf(status.Unavailable, "the python interpreter '%s' has version %s, expected 3.9 or later", path, f[1])
	}
	return "Python " + f[1] + ", numpy " + f[2] + ", " + path, nil
}

func errNumpy(path, given string, err error) error {
	text := err.Error()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(string(e.Stderr)), "\n")
		text = lines[len(lines)-1]
	}
	way := "'" + path + " -m pip install numpy'"
	if given == systemPython { // pip may refuse to install into it
		way = "'tutti runtime fetch python', or name an interpreter that can by " + interpreterVariable
	}
	return status.Errorf(status.Unavailable, "the python interpreter '%s' cannot import numpy (%s): run %s", path, text, way)
}
