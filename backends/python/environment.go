package python

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
)

const (
	// environmentParam is the parameter of config.pbtxt that gives a model its own Python environment: an archive of
	// conda-pack, or a folder.
	environmentParam = "EXECUTION_ENV_PATH"
	// startParam is the parameter that selects the start method of the model's workers.
	startParam     = "START_METHOD"
	modelDirectory = "$$TRITON_MODEL_DIRECTORY"
	// maxUnpacked is the most bytes of an unpacked environment.
	maxUnpacked = 64 << 30
)

// environment sets the model's interpreter, its environment variables and, if possible, its fork servers.
func (m *model) environment(ctx context.Context, s *backends.Settings) (err error) {
	spawn, err := parseStartMethod(s.Param(startParam), "parameter '"+startParam+"'")
	if err != nil {
		return err
	}
	m.env = append(slices.Clone(mallocEnv[:]), m.b.environ()...)
	path := strings.ReplaceAll(s.Param(environmentParam), modelDirectory, s.ModelDir)
	if path == "" {
		m.python = m.b.python(ctx)
		if !spawn && !m.b.set.spawn && m.useForkServer(ctx, "") {
			return nil
		}
		_, err := m.b.interpreter(ctx)
		return err
	}
	dir := path
	st, err := os.Stat(path)
	if err != nil {
		return status.Errorf(status.NotFound, "expected the archive or folder '%s' that parameter '%s' names, found none", path, environmentParam)
	}
	if !st.IsDir() {
		if dir, err = unpacked(ctx, path, st); err != nil {
			return status.Prefixf(err, "cannot unpack '%s' of parameter '%s': ", path, environmentParam)
		}
	}
	m.python = filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(m.python); err != nil {
		return status.Errorf(status.InvalidArg, "expected '%s' in the environment of parameter '%s', found none", filepath.Join("bin", "python"), environmentParam)
	}
	m.env = withEnvironment(m.env, dir)
	if !spawn && !m.b.set.spawn && m.useForkServer(ctx, dir) {
		return nil
	}
	_, err = probe(ctx, m.python, m.b.environ())
	return err
}

// withEnvironment returns the environment variables of an activated environment: its programs and libraries come first.
func withEnvironment(env []string, dir string) []string {
	for _, v := range [][2]string{{"PATH", filepath.Join(dir, "bin")}, {"LD_LIBRARY_PATH", filepath.Join(dir, "lib")}} {
		value := v[1]
		if old := os.Getenv(v[0]); old != "" {
			value += string(os.PathListSeparator) + old
		}
		env = append(env, v[0]+"="+value)
	}
	return append(env, "CONDA_PREFIX="+dir)
}

// unpacked returns a folder in the user's cache with the content of an archive, and unpacks it when it is new. The name of the
// folder depends on the archive's path, size and modification time.
func unpacked(ctx context.Context, path string, st fs.FileInfo) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{abs, st.ModTime().UTC().String(), hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, uint64(st.Size())))}, "\n")))
	home := filepath.Join(cache, "tutti", "python")
	dir := filepath.Join(home, hex.EncodeToString(sum[:12]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	const otherCache = "start the server with XDG_CACHE_HOME at another disk"
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", diskfull.Explain(err, home, otherCache)
	}
	temp, err := os.MkdirTemp(home, "unpacking-")
	if err != nil {
		return "", diskfull.Explain(err, home, otherCache)
	}
	if err := unpack(ctx, path, temp); err != nil {
		err = diskfull.Explain(err, home, otherCache) // it names the free space, so before there is some again
		return "", errors.Join(err, os.RemoveAll(temp))
	}
	if err := os.Rename(temp, dir); err != nil {
		_ = os.RemoveAll(temp)
		if _, there := os.Stat(dir); there != nil { // otherwise another model has unpacked the same archive meanwhile
			return "", err
		}
	}
	return dir, nil
}

// unpack extracts a tar.gz into a folder. Entries cannot escape from it.
func unpack(ctx context.Context, path, dir string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return status.Errorf(status.InvalidArg, "expected a tar.gz: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxUnpacked)
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return status.Errorf(status.InvalidArg, "expected a tar.gz: %w", err)
		case ctx.Err() != nil:
			return status.ErrCancelled
		}
		if left -= h.Size; left < 0 {
			return status.Errorf(status.InvalidArg, "it has more than %d bytes", int64(maxUnpacked))
		}
		if err := unpackEntry(root, h, t); err != nil {
			return err
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := filepath.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return status.Errorf(status.InvalidArg, "unexpected path '%s' in the archive", h.Name)
	}
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o700)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode)&0o755|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return nil // devices and similar entries are skipped
}
