package runtimes

import (
	"cmp"
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
	// Progress receives lines for the user. Optional.
	Progress io.Writer
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
	for _, p := range releases {
		err := f.release(ctx, r, &p, cache)
		if err == nil {
			return f.install(r, &p, cache, dir)
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return "", status.Errorf(status.Unavailable, "unable to fetch %s: %w", r.Title, errors.Join(failures...))
}

func (f *Fetcher) printf(format string, args ...any) {
	if f.Progress != nil {
		fmt.Fprintf(f.Progress, format+"\n", args...)
	}
}

// release downloads one release into the cache. Each archive is retried on its own.
func (f *Fetcher) release(ctx context.Context, r *Runtime, p *Release, cache string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	staged := filepath.Join(tmp, "release")
	for i := range p.Archives {
		a := &p.Archives[i]
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
	if library := filepath.Join(dir, filepath.FromSlash(p.Library)); p.Python != "" && !isFile(library) {
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
