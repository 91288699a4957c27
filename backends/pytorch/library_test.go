package pytorch

import (
	"path/filepath"
	"sync"

	"tutti/runtimes"
)

// LibraryPath finds PyTorch with a shim of this source: that of the project, or any other. Nothing is fetched, for half
// a gigabyte is much.
var LibraryPath = sync.OnceValues(func() (string, error) {
	path, err := runtimes.Find("pytorch", filepath.Join("..", "..", runtimes.Folder))
	if err != nil {
		path, err = runtimes.Find("pytorch", "")
	}
	if err != nil {
		return "", err
	}
	return path, current(filepath.Join(filepath.Dir(path), shimFile))
})

// SourceMark is what a compiled shim has in it.
var SourceMark = sourceMark
