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
	folderPrefix = "tutti-python-"
	mainScript   = "worker.py"
)

// folder holds the files that workers run. Its owner has it locked, so that others see whether it still lives.
type folder struct {
	path string
	lock *os.File
}

// writeScripts writes the files that workers run into a new folder in dir that only this user may enter, and removes
// those of servers that have ended without doing so.
func writeScripts(dir string) (*folder, error) {
	removeLeft(dir)
	path, err := os.MkdirTemp(dir, folderPrefix)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
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

func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close() // it may be so already
	return err
}

// lockFolder opens a folder and locks it for as long as it is open here; workers do not inherit it.
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

// removeLeft removes the folders in dir that nobody has locked. One without its files yet is being made. Those of other
// users cannot be opened.
func removeLeft(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*")) // the pattern is right
	for _, path := range left {
		if st, err := os.Lstat(filepath.Join(path, mainScript)); err != nil || !st.Mode().IsRegular() {
			continue
		}
		f, err := lockFolder(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path) // what is left of it waits for the next start
		_ = f.Close()
	}
}
