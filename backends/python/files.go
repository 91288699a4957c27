package python

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
)

//go:embed worker/*.py
var scripts embed.FS

// writeScripts writes the files that workers run into a new folder that only this user may enter.
func writeScripts() (dir string, err error) {
	dir, err = os.MkdirTemp("", "tutti-python-")
	if err != nil {
		return "", err
	}
	entries, err := scripts.ReadDir("worker")
	for _, e := range entries {
		if err == nil {
			err = writeScript(dir, e.Name())
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func writeScript(dir, name string) error {
	text, err := scripts.ReadFile("worker/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text, 0o600)
}
