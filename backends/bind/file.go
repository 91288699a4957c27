package bind

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// UnreadableFile adds to the error of a runtime that cannot read a model file which format was expected and what was found. The
// runtimes' own errors for a wrong or truncated file rarely say so.
func UnreadableFile(err error, expected, path string) error {
	if err == nil || status.CodeOf(err) == status.Cancelled {
		return err
	}
	what := found(path)
	err = config.Coded(config.ModelFile, "default_model_filename", status.Errorf(status.CodeOf(err), "%w (expected %s, found %s)", err, expected, what))
	err = config.At(err, path, 0)
	if strings.HasPrefix(what, lfsPointer) {
		return config.WithFix(err, "run 'git lfs pull' to fetch the file itself")
	}
	return config.WithFix(err, "copy or export the file again")
}

// lfsPointer describes the file that Git LFS leaves in place of one that was not fetched.
const lfsPointer = "a pointer of Git LFS"

// shown is the number of bytes of a text file that an error quotes.
const shown = 16

// found describes the file at a path: its size and, for a text file, its first bytes.
func found(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "no file"
	case info.IsDir():
		return "a folder"
	case info.Size() == 0:
		return "an empty file"
	}
	f, err := os.Open(path)
	if err != nil {
		return "a file that cannot be read"
	}
	defer func() { _ = f.Close() }()
	var head [40]byte
	n, _ := f.Read(head[:])
	if strings.HasPrefix(string(head[:n]), "version https://git-lfs.github.com/spec/") {
		return lfsPointer + fmt.Sprintf(" of %d bytes", info.Size())
	}
	n = min(n, shown)
	for _, b := range head[:n] {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return fmt.Sprintf("%d bytes", info.Size())
		}
	}
	return fmt.Sprintf("%d bytes that begin with %q", info.Size(), head[:n])
}

// ModelFile returns the path of the model file. Where it is a folder, that folder must contain a file of the default name, unless
// isModel accepts the folder itself; isModel may be nil.
func ModelFile(s *backends.Settings, name string, isModel func(folder string) bool) (string, error) {
	path := s.File(name)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		if isModel != nil && isModel(path) {
			return path, nil
		}
		path = filepath.Join(path, name)
		info, err = os.Stat(path)
	}
	if err != nil {
		return "", config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", path, s.Model), path)
	}
	if !info.Mode().IsRegular() { // for example a pipe, which would block the loader
		return "", status.Errorf(status.InvalidArg, "unable to load model '%s': expected a file at '%s', found %s", s.Model, path, info.Mode())
	}
	return path, nil
}
