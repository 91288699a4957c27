package bind

import (
	"fmt"
	"os"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// Unread adds to the error of a runtime that cannot read a model's file what was expected there and what is: runtimes
// tell of a file of another kind, or one that ends too early, in words of their own.
func Unread(err error, expected, path string) error {
	if err == nil || status.CodeOf(err) == status.Cancelled {
		return err
	}
	what := found(path)
	err = config.Coded(config.ModelFile, "default_model_filename", status.Errorf(status.CodeOf(err), "%w (expected %s, found %s)", err, expected, what))
	err = config.At(err, path, 0)
	if strings.HasPrefix(what, lfsPointer) {
		return config.WithFix(err, "run 'git lfs pull' to have the file itself")
	}
	return config.WithFix(err, "copy or export the file again")
}

// lfsPointer is what Git leaves of a large file that was not fetched.
const lfsPointer = "a pointer of Git LFS"

// shown is how much of a text file's beginning an error shows.
const shown = 16

// found says what lies at a path: how much, and how it begins where that is text.
func found(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "no file"
	case info.IsDir():
		return "a folder"
	case info.Size() == 0:
		return "an empty file"
	}
	f, err := os.Open(path)
	if err != nil {
		return "a file that cannot be read"
	}
	defer func() { _ = f.Close() }()
	var head [40]byte
	n, _ := f.Read(head[:])
	if strings.HasPrefix(string(head[:n]), "version https://git-lfs.github.com/spec/") {
		return lfsPointer + fmt.Sprintf(" of %d bytes", info.Size())
	}
	n = min(n, shown)
	for _, b := range head[:n] {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return fmt.Sprintf("%d bytes", info.Size())
		}
	}
	return fmt.Sprintf("%d bytes that begin with %q", info.Size(), head[:n])
}
