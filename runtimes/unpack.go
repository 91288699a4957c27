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

// unpack writes one member of an archive, a wheel or a tgz, to a new file. At most size bytes are written.
func unpack(archive, member, to string, size int64) error {
	if strings.HasSuffix(archive, ".tgz") {
		return unpackTar(archive, member, to, size)
	}
	z, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("archive %s: %w", filepath.Base(archive), err)
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Name != member {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return fmt.Errorf("archive %s: %w", filepath.Base(archive), err)
		}
		return errors.Join(write(to, in, size), in.Close())
	}
	return missing(archive, member)
}

func unpackTar(archive, member, to string, size int64) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("archive %s: %w", filepath.Base(archive), err)
	}
	for t := tar.NewReader(unzipped); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return missing(archive, member)
		case err != nil:
			return fmt.Errorf("archive %s: %w", filepath.Base(archive), err)
		case h.Name == member:
			return write(to, t, size)
		}
	}
}

func missing(archive, member string) error {
	return fmt.Errorf("archive %s has no %s", filepath.Base(archive), member)
}

func write(to string, in io.Reader, size int64) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, size+1))
	return errors.Join(err, out.Close())
}
