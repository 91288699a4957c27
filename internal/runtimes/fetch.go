package runtimes

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/files"
)

// Fetcher downloads runtimes. The zero value uses List.
type Fetcher struct {
	Catalog  []Runtime     // Catalog replaces List unless nil
	Cache    string        // the folder shared by all checkouts. Empty: the user's cache folder.
	Env      []string      // added to the environment of the package clients
	Attempts int           // the number of attempts per release; 0: three
	Wait     time.Duration // the time before the second attempt, doubled for each further one. 0: two seconds.
	// Large is the size in bytes from which an archive is downloaded by a pip that resumes broken transfers. 0: 100
	// MiB.
	Large int64
	// From are files, or folders of files, in which the archives are looked for in place of downloads. The release must be
	// the first one for this machine.
	From []string
	// Progress receives lines for the user. Optional.
	Progress io.Writer
	// Transfer receives how many bytes of an archive have arrived, again and again, and -1 at the end of the download.
	// Optional.
	Transfer func(a *Archive, bytes int64)
}

// Fetch installs the named runtime under dir and returns the library's path. A verified installation is kept: then
// the call only costs hashing one file.
func (f *Fetcher) Fetch(ctx context.Context, name, dir string) (string, error) {
	list := f.Catalog
	if list == nil {
		list = List()
	}
	r, err := known(list, name)
	if err != nil {
		return "", err
	}
	releases := r.releases()
	if len(releases) == 0 {
		return "", status.Errorf(status.Unsupported, "no pinned release of %s for %s/%s: set %s to a library of your own",
			r.Title, runtime.GOOS, runtime.GOARCH, r.Env())
	}
	if releases[0].Python != "" {
		if releases, err = r.forInterpreter(ctx, releases); err != nil {
			return "", err
		}
	}
	cache := f.Cache
	if cache == "" {
		if cache, err = cacheFolder(); err != nil {
			return "", status.Errorf(status.Unavailable, "no cache folder: %w", err)
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	// Any installed release will do.
	for _, from := range []string{dir, cache} {
		for _, p := range releases {
			if p.complete(filepath.Join(from, r.folderName(&p))) == nil {
				return f.install(r, &p, from, dir)
			}
		}
	}
	var failures []error
	if len(f.From) > 0 {
		releases = releases[:1]
	}
	for _, p := range releases {
		err := f.release(ctx, r, &p, cache)
		if err == nil {
			return f.install(r, &p, cache, dir)
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
		f.printf("unable to fetch %s %s: %v", r.Title, p.Version, err)
	}
	err = diskfull.Explain(errors.Join(failures...), cache, otherCache)
	return "", &status.Error{Code: status.Unavailable, Msg: fmt.Sprintf("unable to fetch %s: %v", r.Title, err), Err: err, RetryAfter: status.RetryAfter(err)}
}

func (f *Fetcher) printf(format string, args ...any) {
	if f.Progress != nil {
		fmt.Fprintf(f.Progress, format+"\n", args...)
	}
}

// otherCache is what to do when the cache's disk is full.
const otherCache = "set XDG_CACHE_HOME to a folder of another disk"

// release downloads one release into the cache. Each archive is retried on its own.
func (f *Fetcher) release(ctx context.Context, r *Runtime, p *Release, cache string) (err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	defer func() { err = diskfull.Explain(err, cache, otherCache) }() // before the removal frees what was missing
	staged := filepath.Join(tmp, "release")
	f.announce(r, p)
	for i := range p.Archives {
		a := &p.Archives[i]
		if len(f.From) > 0 {
			if err := f.unpackLocal(a, staged); err != nil {
				return err
			}
			continue
		}
		c, err := f.client(ctx, a, cache)
		if err != nil {
			return err
		}
		f.printf("fetching %s %s with %s: %s (%.1f MB)", r.Title, p.Version, a.Client, a.Package, float64(a.Size)/1e6)
		if err := f.retry(ctx, a, func() error { return f.archive(ctx, a, c, tmp, staged) }); err != nil {
			return err
		}
	}
	if p.Python != "" {
		if err := p.base.environment(staged); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(staged, sealFile), []byte(p.sealText()), 0o600); err != nil {
		return err
	}
	return moveFolder(staged, filepath.Join(cache, r.folderName(p)))
}

// announce prints what a release of several archives will download: each one with its size and SHA-256.
func (f *Fetcher) announce(r *Runtime, p *Release) {
	if len(p.Archives) < 2 {
		return
	}
	var size, unpacked int64
	for i := range p.Archives {
		size += p.Archives[i].Size
		for _, m := range p.Archives[i].Members {
			unpacked += m.Bytes
		}
	}
	disk := ""
	if unpacked > size { // of packages that pip installs it is hardly known
		disk = fmt.Sprintf(", and %.1f MB or more unpacked", float64(unpacked)/1e6)
	}
	f.printf("%s %s is %d archives of %.1f MB together%s:", r.Title, p.Version, len(p.Archives), float64(size)/1e6, disk)
	for i := range p.Archives {
		a := &p.Archives[i]
		f.printf("  %-36s %7.1f MB  SHA-256 %s", a.Package, float64(a.Size)/1e6, a.Sum)
	}
}

// retry repeats once after failures, with growing pauses.
func (f *Fetcher) retry(ctx context.Context, a *Archive, once func() error) error {
	attempts, wait := cmp.Or(f.Attempts, 3), cmp.Or(f.Wait, 2*time.Second)
	for try := 1; ; try++ {
		err := once()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || try == attempts {
			return fmt.Errorf("%s, attempt %d of %d: %w", a.Package, try, attempts, err)
		}
		f.printf("attempt %d of %d failed: %v", try, attempts, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// unpackLocal verifies and unpacks an archive of From.
func (f *Fetcher) unpackLocal(a *Archive, staged string) error {
	path, err := f.local(a)
	if err != nil {
		return err
	}
	f.printf("unpacking %s of %s", path, a.Package)
	if err := unpack(path, a.Members, staged); err != nil {
		return err
	}
	return checkMembers(a.Members, staged)
}

// archive downloads, verifies and unpacks one archive into the staged release.
func (f *Fetcher) archive(ctx context.Context, a *Archive, c client, tmp, staged string) error {
	path, err := f.download(ctx, c, a, tmp)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(path))
	if err := checkFile(path, a.Sum, a.Size); err != nil {
		return err
	}
	if err := unpack(path, a.Members, staged); err != nil {
		return err
	}
	return checkMembers(a.Members, staged)
}

// install copies a verified release to dir, unless it is there already, and returns its library.
func (f *Fetcher) install(r *Runtime, p *Release, root, dir string) (string, error) {
	from, to := filepath.Join(root, r.folderName(p)), filepath.Join(dir, r.folderName(p))
	library := filepath.Join(to, filepath.FromSlash(p.Library))
	if from == to {
		return library, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, ".place-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	staged := filepath.Join(tmp, "release")
	// Hard links would be cheaper, but damage to one copy would damage the cache.
	if err := os.CopyFS(staged, os.DirFS(from)); err != nil {
		return "", err
	}
	if err := p.complete(staged); err != nil {
		return "", err
	}
	if err := moveFolder(staged, to); err != nil {
		return "", err
	}
	f.printf("%s %s is in %s", r.Title, p.Version, library)
	return library, nil
}

// moveFolder replaces a folder by one rename, so that no reader sees half of it.
func moveFolder(from, to string) error {
	old := from + "-old"
	if err := os.Rename(to, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Rename(from, to), os.RemoveAll(old))
}

// sealFile marks a complete release in its folder. It holds the archives' hashes, so that the folder of another
// release is not mistaken for this one.
const sealFile = ".complete"

func (p *Release) sealText() string {
	var text strings.Builder
	for i := range p.Archives {
		text.WriteString(p.Archives[i].Sum + "\n")
	}
	return text.String()
}

// complete checks that dir holds the whole release: pinned files by their hashes, folders by the seal that was
// written after the archive was verified.
func (p *Release) complete(dir string) error {
	folders := false
	for i := range p.Archives {
		members := p.Archives[i].Members
		if err := checkMembers(members, dir); err != nil {
			return err
		}
		folders = folders || slices.ContainsFunc(members, func(m Member) bool { return m.folder() })
	}
	if !folders {
		return nil
	}
	if library := filepath.Join(dir, filepath.FromSlash(p.Library)); p.Python != "" && !files.IsRegular(library) {
		return fmt.Errorf("'%s' is missing, or the Python that it leads to", library)
	}
	seal, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err == nil && string(seal) != p.sealText() {
		err = status.Errorf(status.Internal, "'%s' holds another release than %s", dir, p.Version)
	}
	return err
}

// checkMembers verifies the pinned files of a release's folder.
func checkMembers(members []Member, dir string) error {
	for i := range members {
		if m := &members[i]; !m.folder() {
			if err := checkFile(filepath.Join(dir, filepath.FromSlash(m.File)), m.Sum, m.Bytes); err != nil {
				return err
			}
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
