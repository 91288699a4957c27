package repository

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The bounds of a walk: links may lead in circles, and a folder may hold anything.
const (
	maxPrintDepth   = 16
	maxPrintEntries = 1 << 17
)

// fingerprint returns a number that changes when a file of the model is added, removed, written, or gets other
// permissions. It is never 0.
func fingerprint(p location) uint64 {
	h := fnv.New64a()
	w := &walk{out: h}
	if p.bucket != nil {
		w.name(p.bucket.state(p.name, p.objects))
	} else {
		w.folder(p.dir, 0)
	}
	if p.duplicate != "" {
		w.name(p.duplicate)
	}
	return max(1, h.Sum64())
}

// walk hashes the names, sizes, times and modes below a folder.
type walk struct {
	out     io.Writer
	skip    func(name string) bool // top-level names to leave out; nil: none
	entries int
	buf     []byte
}

func (w *walk) name(s string) {
	w.buf = append(append(w.buf[:0], s...), 0)
	_, _ = w.out.Write(w.buf) // a hash takes everything
}

// folder adds the content of dir. An unreadable folder counts as empty: loading reports the error.
func (w *walk) folder(dir string, depth int) {
	entries, err := os.ReadDir(dir)
	if err != nil || depth > maxPrintDepth {
		return
	}
	for _, e := range entries {
		if w.entries++; w.entries > maxPrintEntries || ignoredFile(e.Name()) || depth == 0 && w.skip != nil && w.skip(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		w.name(e.Name())
		if info.IsDir() {
			w.folder(path, depth+1)
			w.name("..")
			continue
		}
		w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(info.Size()))
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(info.ModTime().UnixNano()))
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(info.Mode())) // a file that became readable was not written
		_, _ = w.out.Write(w.buf)
	}
}

// ignoredFile reports whether a file is a by-product of using or editing a model: compiled Python modules, hidden
// files, files of editors.
func ignoredFile(name string) bool {
	return name == "__pycache__" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") ||
		strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, ".swp")
}
