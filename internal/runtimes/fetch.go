package runtimes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// Fetcher downloads runtimes. The zero value uses List.
type Fetcher struct {
	// Catalog replaces List unless nil.
	Catalog []Runtime
	// Cache is the folder shared by all checkouts. Empty: the user's cache folder.
	Cache string
	// Env is added to the environment of the package clients.
	Env []string
	// Attempts is the number of attempts per release; 0: three.
	Attempts int
	// Wait is the time before the second attempt, doubled for each further one. 0: two seconds.
	Wait time.Duration
	// Large is the size in bytes from which an archive is downloaded by a pip that resumes broken transfers. 0: 100
	// MiB.
	Large int64
	// Progress receives lines for the user. Optional.
	Progress io.Writer
}

// Fetch installs the named runtime under dir and returns the library's path. A verified installation is kept: then
// the call only costs hashing one file. progress may be nil.
func Fetch(ctx context.Context, name, dir string, progress io.Writer) (string, error) {
	return (&Fetcher{Progress: progress}).Fetch(ctx, name, dir)
}

// Fetch installs the named runtime under dir and returns the library's path.
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
	cache, err := f.cache()
	if err != nil {
		return "", err
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

func (f *Fetcher) cache() (string, error) {
	if f.Cache != "" {
		return f.Cache, nil
	}
	dir, err := cacheFolder()
	if err != nil {
		return "", status.Errorf(status.Unavailable, "no cache folder: %w", err)
	}
	return dir, nil
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
	if err := p.seal(staged); err != nil {
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
	if err := copyTree(from, staged); err != nil {
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

// copyTree copies a release's files and symbolic links. Hard links would be cheaper, but damage to one copy would
// damage the cache.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			return copyLink(path, target)
		}
		return copyFile(path, target)
	})
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
