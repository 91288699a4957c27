package bind

import (
	"fmt"
	"os"

	"tutti/core/status"
)

// Unread adds to the error of a runtime that cannot read a model's file what was expected there and what is: runtimes
// tell of a file of another kind, or one that ends too early, in words of their own.
func Unread(err error, expected, path string) error {
	if err == nil || status.CodeOf(err) == status.Cancelled {
		return err
	}
	return status.Errorf(status.CodeOf(err), "%w (expected %s, found %s)", err, expected, found(path))
}

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
	var head [16]byte
	n, _ := f.Read(head[:])
	for _, b := range head[:n] {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return fmt.Sprintf("%d bytes", info.Size())
		}
	}
	return fmt.Sprintf("%d bytes that begin with %q", info.Size(), head[:n])
}
