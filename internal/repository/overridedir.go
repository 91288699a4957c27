package repository

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/tempfolder"
)

// overrideDir holds the files that came with a load request. It is removed when its last user releases it.
type overrideDir struct {
	dir   string
	temp  *tempfolder.Folder
	users atomic.Int32
}

// overridePrefix begins the names of folders with override files.
const overridePrefix = "tutti-override-"

func (t *overrideDir) retain() {
	if t != nil {
		t.users.Add(1)
	}
}

// release removes the folder after the last user.
func (t *overrideDir) release() error {
	if t == nil || t.users.Add(-1) > 0 {
		return nil
	}
	return t.temp.Remove()
}

// newOverrideDir writes the files into a private folder and retains it once.
func newOverrideDir(model string, files map[string][]byte) (*overrideDir, error) {
	for name := range files {
		if !filepath.IsLocal(inside(name)) || inside(name) == "." {
			return nil, failedToPoll(model, ": override file '"+name+"' is outside the model's folder, expected a relative path as in '1/model.onnx'")
		}
	}
	temp, err := tempfolder.Make(os.TempDir(), overridePrefix)
	if err != nil {
		return nil, diskfull.Explain(err, os.TempDir(), otherTemp)
	}
	dir := temp.Path()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeBelow(dir, inside(name), files[name]); err != nil {
			err = diskfull.Explain(err, dir, otherTemp)
			_ = temp.Remove() // the first error says more
			return nil, unreadable(model, status.Prefixf(err, "override file '%s' cannot be written: ", name))
		}
	}
	t := &overrideDir{dir: dir, temp: temp}
	t.retain()
	return t, nil
}

// otherTemp is the advice for a disk of temporary files that is full.
const otherTemp = "start the server with TMPDIR at another disk"

// inside returns the path of an override file relative to its model's folder. A leading slash means that folder.
func inside(name string) string { return filepath.Clean(strings.TrimLeft(name, "/")) }

func writeBelow(dir, name string, data []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o600)
}
