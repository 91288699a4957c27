package runtimes

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// unpack writes members of a wheel or tgz archive below dir. Every member must exist.
func unpack(archive string, members []Member, dir string) error {
	found := make([]bool, len(members))
	each := unpackZip
	if strings.HasSuffix(archive, ".tgz") {
		each = unpackTar
	}
	err := each(archive, func(name string, open func() (io.ReadCloser, error)) error {
		for i := range members {
			file, ok := members[i].target(name)
			if !ok {
				continue
			}
			found[i] = true
			in, err := open()
			if err != nil {
				return err
			}
			limit := members[i].Bytes
			if members[i].folder() {
				limit = 4 << 30 // the sizes of its files are not pinned
			}
			return errors.Join(write(filepath.Join(dir, file), in, limit), in.Close())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("archive %s: %w", filepath.Base(archive), err)
	}
	for i := range members {
		if !found[i] {
			return fmt.Errorf("archive %s has no %s", filepath.Base(archive), members[i].Path)
		}
	}
	return nil
}

// target returns the path of an archive's file below the release's folder. A name that leads out of it belongs to
// no member.
func (m *Member) target(name string) (string, bool) {
	if !m.folder() {
		return filepath.FromSlash(m.File), name == m.Path
	}
	rest, ok := strings.CutPrefix(name, m.Path)
	if !ok || strings.HasSuffix(name, "/") || !filepath.IsLocal(filepath.FromSlash(rest)) {
		return "", false
	}
	return filepath.Join(filepath.FromSlash(m.File), filepath.FromSlash(rest)), true
}

// visit is called with each file of an archive.
type visit func(name string, open func() (io.ReadCloser, error)) error

func unpackZip(archive string, f visit) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, file := range z.File {
		if err := f(file.Name, file.Open); err != nil {
			return err
		}
	}
	return nil
}

func unpackTar(archive string, f visit) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for t := tar.NewReader(unzipped); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := f(h.Name, func() (io.ReadCloser, error) { return io.NopCloser(t), nil }); err != nil {
			return err
		}
	}
}

// write creates a file of at most size bytes. It reads one byte more to detect a larger one.
func write(to string, in io.Reader, size int64) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, size+1))
	return errors.Join(err, out.Close())
}
