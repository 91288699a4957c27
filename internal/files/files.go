// Package files has what several packages do with files.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// IsRegular reports whether there is a file at path that is no folder, device or the like. A link counts as what it leads to.
func IsRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Replace writes a file, or replaces it. A reader sees the whole old or the whole new content, also after a crash of the machine. A link is
// replaced itself.
func Replace(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
