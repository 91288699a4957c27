package python

import (
	"embed"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

//go:embed worker/*.py
var scripts embed.FS

const (
	scriptFolderPrefix = "tutti-python-"
	mainScript         = "worker.py"
)

// scriptFolder is a temporary folder with the scripts of workers. The server that created it holds a lock on it, by which other
// servers recognise a stale folder.
type scriptFolder struct {
	path string
	lock *os.File
}

// writeScripts writes the scripts of workers to a new private folder in dir. It also removes stale folders, which servers that
// crashed left behind.
func writeScripts(dir string) (*scriptFolder, error) {
	removeStaleFolders(dir)
	path, err := os.MkdirTemp(dir, scriptFolderPrefix)
	if err != nil {
		return nil, err
	}
	f := &scriptFolder{path: path}
	if f.lock, err = lockFolder(path); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	entries, err := scripts.ReadDir("worker")
	for _, e := range entries {
		if err == nil {
			err = writeScript(path, e.Name())
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

func writeScript(dir, name string) error {
	text, err := scripts.ReadFile("worker/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text, 0o600)
}

func (f *scriptFolder) remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close() // it may be closed already
	return err
}

// lockFolder opens and locks a folder. Closing the file releases the lock. Workers do not inherit it.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor fits
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeStaleFolders removes the unlocked script folders in dir. It skips folders without the main script, which another
// server is creating, and folders of other users, which cannot be opened.
func removeStaleFolders(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, scriptFolderPrefix+"*")) // the pattern is valid
	for _, path := range left {
		if st, err := os.Lstat(filepath.Join(path, mainScript)); err != nil || !st.Mode().IsRegular() {
			continue
		}
		f, err := lockFolder(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path) // the next start retries after an error
		_ = f.Close()
	}
}
