package lab

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/core/config"
)

// Overlay is a folder of models that consists of links to those of another, with other configurations. So settings are
// tried without a change to the models of the user.
type Overlay struct{ Dir string }

// NewOverlay makes a temporary folder in which every model of root is a link. The caller must call Remove.
func NewOverlay(root string) (*Overlay, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tutti-lab")
	if err != nil {
		return nil, err
	}
	o := &Overlay{dir}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return nil, errors.Join(err, o.Remove())
		}
	}
	return o, nil
}

// Remove removes the folder.
func (o *Overlay) Remove() error { return os.RemoveAll(o.Dir) }

// Set makes a model out of the files in a folder and the text of a configuration. It replaces a model of the name.
func (o *Overlay) Set(name, from string, text []byte) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	to := filepath.Join(o.Dir, name)
	if err := os.RemoveAll(to); err != nil { // of a link, only the link
		return err
	}
	if err := os.Mkdir(to, 0o750); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == config.FileName {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, config.FileName), text, 0o600)
}
