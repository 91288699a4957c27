// Package tempfolder makes temporary folders that the next server removes when their own was killed.
package tempfolder

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// making precedes the name of a folder that is not locked yet.
const making = ".new-"

// Folder is a private temporary folder. Its process holds a lock on it, which the system releases when the process ends: an unlocked
// folder is stale. Child processes do not inherit the lock.
type Folder struct {
	path string
	lock *os.File
}

// Make makes a folder in dir whose name begins with prefix.
func Make(dir, prefix string) (*Folder, error) {
	temp, err := os.MkdirTemp(dir, making+prefix)
	if err != nil {
		return nil, err
	}
	lock, err := Lock(temp)
	if err != nil {
		return nil, errors.Join(err, os.Remove(temp))
	}
	f := &Folder{filepath.Join(dir, filepath.Base(temp)[len(making):]), lock}
	if err := os.Rename(temp, f.path); err != nil {
		return nil, errors.Join(err, lock.Close(), os.Remove(temp))
	}
	return f, nil
}

// Path returns the folder's path.
func (f *Folder) Path() string { return f.path }

// Remove removes the folder.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close() // it may be closed already
	return err
}

// Lock opens and locks a folder. It fails if another process, or another call, holds the lock. Closing the file releases it.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor fits
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// RemoveStale removes the unlocked folders in dir whose names begin with prefix. Folders of other users, which cannot be opened, and
// folders that Make does not return yet are left alone. If own is not nil, so are the folders for which it returns false.
func RemoveStale(dir, prefix string, own func(path string) bool) {
	left, _ := filepath.Glob(filepath.Join(dir, prefix+"*")) // prefixes have no metacharacters
	for _, path := range left {
		if own != nil && !own(path) {
			continue
		}
		f, err := Lock(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path) // the next start tries again after an error
		_ = f.Close()
	}
}
