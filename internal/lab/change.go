package lab

import (
	"os"
	"path/filepath"

	"github.com/aymanbagabas/go-udiff"

	"github.com/tutti-server/tutti/internal/files"
)

// Change is a new text of a model's config.pbtxt.
type Change struct {
	Model string
	Path  string // of config.pbtxt
	// From and To are the texts; From is nil if there is no file.
	From, To []byte
}

// Diff returns the change as a unified diff.
func (c *Change) Diff() string {
	from := c.Path
	if c.From == nil {
		from = "/dev/null"
	}
	return udiff.Unified(from, c.Path, string(c.From), string(c.To))
}

// Write replaces the file, or makes it. A reader sees the whole old or the whole new text.
func (c *Change) Write() error {
	mode := os.FileMode(0o644)
	path := c.Path
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	return files.Replace(path, c.To, mode)
}
