package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/steps"
)

// backendsDir holds a repository for each backend that loads files of a framework.
const backendsDir = "../../examples/backends"

// backendRoot is the prefix of those repositories' names.
const backendRoot = "backends/"

// backendRoots returns the example repositories of backends by name, and the server flags that they need. Each
// repository whose runtime is missing becomes a skipped test with the command that installs the runtime.
func backendRoots(t *testing.T) (roots map[string]string, flags []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(backendsDir, "*", cli.ExpectedFile))
	if err != nil || len(found) == 0 {
		t.Fatalf("no examples in '%s': %v", backendsDir, err)
	}
	roots = map[string]string{}
	for _, path := range found {
		root := filepath.Dir(path)
		needs, lacking, err := runnable(t, root)
		if err != nil {
			t.Run(backendRoot+filepath.Base(root), func(t *testing.T) { preparedtest.Skip(t, lacking, err) })
			continue
		}
		roots[backendRoot+filepath.Base(root)] = root
		flags = append(flags, needs...)
	}
	return roots, flags
}

// runnable returns the server flags that a repository's backends need, or the name of a backend that is not usable
// on this machine.
func runnable(t *testing.T, root string) (flags []string, lacking string, err error) {
	t.Helper()
	for _, f := range factoriesOf(t, root) {
		values := map[string]string{}
		if f.Name == backends.LibraryBackend {
			dir, err := tritonBackends()
			if err != nil {
				return nil, "triton_backends", err
			}
			flags = append(flags, "--backend-directory", dir)
		}
		if isLibrary(f.Name) {
			if values["library-path"], err = preparedtest.Find(f.Name); err != nil {
				return nil, f.Name, err
			}
			flags = append(flags, "--backend-config", f.Name+",library-path="+values["library-path"])
		}
		if err := usable(f, values); err != nil {
			return nil, f.Name, err
		}
	}
	return flags, "", nil
}

// tritonBackends returns the folder of the libraries made for Triton that the tests have built.
func tritonBackends() (string, error) {
	dir := os.Getenv(preparedtest.Variable("triton_backends"))
	if dir == "" {
		root, err := preparedtest.Root()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin", "triton-backends")
	}
	_, err := os.Stat(dir)
	return dir, err
}

// isLibrary reports whether a backend opens a runtime's library.
func isLibrary(name string) bool {
	return slices.ContainsFunc(runtimes.List(), func(r runtimes.Runtime) bool { return r.Name == name && len(r.Sonames) > 0 })
}

// usable returns an error if a backend is not usable on this machine.
func usable(f *backends.Factory, values map[string]string) error {
	b, err := f.New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: values})
	if err != nil {
		return err
	}
	if c, ok := b.(interface{ Check() error }); ok {
		err = c.Check()
	}
	return errors.Join(err, b.Close())
}

// factoriesOf returns the backends of a repository's models.
func factoriesOf(t *testing.T, root string) []*backends.Factory {
	t.Helper()
	c := components()
	registry, err := backends.NewRegistry(c.Backends(&steps.Registry{})...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "config.pbtxt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no models in '%s': %v", root, err)
	}
	var list []*backends.Factory
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		if config.IsEnsemble(cfg) {
			continue
		}
		f := registry.ByName(cfg.GetBackend())
		if f == nil {
			f = registry.ByPlatform(cfg.GetPlatform())
		}
		if f == nil && cfg.GetBackend() != "" {
			f = registry.ByName(backends.LibraryBackend)
		}
		if f == nil {
			t.Fatalf("'%s' names no backend", path)
		}
		if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

// TestBackendExamples checks that the two-input models of all backends have two inputs, two outputs and a tolerance
// of at most 1e-5.
func TestBackendExamples(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(backendsDir, "*", cli.ExpectedFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		examples, err := cli.ReadExamples(filepath.Dir(path))
		if err != nil {
			t.Error(err)
		}
		for i := range examples {
			e := &examples[i]
			if !strings.HasPrefix(e.Request.Model, "simple_") || len(e.Request.Inputs) != 2 || len(e.Outputs) != 2 || e.Atol > 1e-5 {
				t.Errorf("'%s', request '%s' of '%s': %d inputs, %d outputs, atol %g", path, e.Name, e.Request.Model, len(e.Request.Inputs), len(e.Outputs), e.Atol)
			}
		}
	}
}
