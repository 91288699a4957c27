package python_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// writeArchive writes a tar.gz of executable files, given by path.
func writeArchive(t *testing.T, path string, files map[string]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for name, text := range files {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, e := w.Write([]byte(text))
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestEnvironment checks that EXECUTION_ENV_PATH unpacks an environment into the user's cache, and the errors of
// bad archives.
func TestEnvironment(t *testing.T) {
	o, path := options(t), preparedtest.Runtime(t, "python")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	writeArchive(t, filepath.Join(dir, "good.tar.gz"), map[string]string{"bin/python": "#!/bin/sh\nexec '" + path + "' \"$@\"\n"})
	writeArchive(t, filepath.Join(dir, "empty.tar.gz"), map[string]string{"bin/other": ""})
	writeArchive(t, filepath.Join(dir, "outside.tar.gz"), map[string]string{"../outside": ""})
	if err := os.WriteFile(filepath.Join(dir, "text.tar.gz"), []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"good.tar.gz":    "",
		"empty.tar.gz":   "expected 'bin/python' in the environment of parameter 'EXECUTION_ENV_PATH', found none",
		"outside.tar.gz": "unexpected path '../outside' in the archive",
		"text.tar.gz":    "expected a tar.gz",
		"none.tar.gz":    "expected the archive or folder '" + filepath.Join(dir, "none.tar.gz") + "' that parameter 'EXECUTION_ENV_PATH' names, found none",
	} {
		b, err := python.NewFactory().New(o)
		if err != nil {
			t.Fatal(err)
		}
		s := settings(t, "add_sub", addSub(0))
		s.ModelDir = dir
		s.Config.Parameters = map[string]*modelconfig.ModelParameter{"EXECUTION_ENV_PATH": {StringValue: "$$TRITON_MODEL_DIRECTORY/" + name}}
		m, err := b.Load(t.Context(), s)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q in it", name, err, want)
		}
		if err == nil {
			err = m.Close()
		} else {
			err = nil
		}
		if err := errors.Join(err, b.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "outside")); err == nil {
		t.Error("an archive wrote outside of its folder")
	}
}
