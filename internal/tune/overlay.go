package tune

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/core/config"
)

// overlay is a folder of models that consists of links to those of another, with other configurations. So settings are
// tried without a change to the models of the user.
type overlay struct{ dir string }

// newOverlay makes a temporary folder in which every model of root is a link. The caller must call remove.
func newOverlay(root string) (*overlay, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tutti-tune")
	if err != nil {
		return nil, err
	}
	o := &overlay{dir}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return nil, errors.Join(err, o.remove())
		}
	}
	return o, nil
}

func (o *overlay) remove() error { return os.RemoveAll(o.dir) }

// set makes a model out of the files in a folder and the text of a configuration. It replaces a model of the name.
func (o *overlay) set(name, from string, text []byte) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	to := filepath.Join(o.dir, name)
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

// Change is a new text of a model's config.pbtxt.
type Change struct {
	Model string
	Path  string // of config.pbtxt
	// From and To are the texts; From is nil if there is no file.
	From, To []byte
}

// Changes returns the changes from the current settings to others, by model of the network. The folders of models are
// those of Folder.
func Changes(n *Network, folder func(model string) string, to []Setting) (list []Change, err error) {
	for i := range n.Models {
		m := &n.Models[i]
		edits := Edits(m.Config, &m.Current, &to[i])
		if len(edits) == 0 {
			continue
		}
		c := Change{Model: m.Name, Path: filepath.Join(folder(m.Name), config.FileName)}
		if c.From, err = os.ReadFile(c.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if c.To, err = config.EditText(c.From, edits...); err == nil {
			_, err = config.Parse(c.Path, c.To)
		}
		if err != nil {
			return nil, fmt.Errorf("'%s' cannot be edited: %w", c.Path, err)
		}
		list = append(list, c)
	}
	return list, nil
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
	f, err := os.CreateTemp(filepath.Dir(path), ".config.pbtxt-")
	if err != nil {
		return err
	}
	_, err = f.Write(c.To)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
