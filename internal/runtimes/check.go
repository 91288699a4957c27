package runtimes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// sealFile marks a complete release in its folder. It holds the archives' hashes, so that the folder of another
// release is not mistaken for this one.
const sealFile = ".complete"

func (p *Release) sealText() string {
	var b strings.Builder
	for i := range p.Archives {
		b.WriteString(p.Archives[i].Sum + "\n")
	}
	return b.String()
}

// seal marks a folder as complete.
func (p *Release) seal(dir string) error {
	return os.WriteFile(filepath.Join(dir, sealFile), []byte(p.sealText()), 0o600)
}

// complete checks that dir holds the whole release: pinned files by their hashes, folders by the seal that was
// written after the archive was verified.
func (p *Release) complete(dir string) error {
	for i := range p.Archives {
		if err := checkMembers(p.Archives[i].Members, dir); err != nil {
			return err
		}
	}
	if !p.hasFolder() {
		return nil
	}
	if library := filepath.Join(dir, filepath.FromSlash(p.Library)); p.Python != "" && !isFile(library) {
		return fmt.Errorf("'%s' is missing, or the Python that it leads to", library)
	}
	seal, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err == nil && string(seal) != p.sealText() {
		err = status.Errorf(status.Internal, "'%s' holds another release than %s", dir, p.Version)
	}
	return err
}

func (p *Release) hasFolder() bool {
	for i := range p.Archives {
		for j := range p.Archives[i].Members {
			if p.Archives[i].Members[j].folder() {
				return true
			}
		}
	}
	return false
}

// checkMembers verifies the pinned files of a release's folder.
func checkMembers(members []Member, dir string) error {
	for i := range members {
		m := &members[i]
		if m.folder() {
			continue
		}
		if err := checkFile(filepath.Join(dir, filepath.FromSlash(m.File)), m.Sum, m.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// checkFile compares a file with its pinned size and SHA-256.
func checkFile(path, sum string, size int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size {
		return fmt.Errorf("size of %s: expected %d bytes, found %d", filepath.Base(path), size, info.Size())
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("SHA-256 of %s: expected %s, found %s", filepath.Base(path), sum, got)
	}
	return nil
}
