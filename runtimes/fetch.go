package runtimes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tutti/core/status"
)

// Fetcher places runtimes. The zero value fetches what List names.
type Fetcher struct {
	// Catalog replaces List when it is not nil.
	Catalog []Runtime
	// Cache is the folder that keeps libraries for other checkouts; empty for the user's cache folder.
	Cache string
	// Env is added to the environment of the package clients.
	Env []string
	// Attempts is how often one release is tried before the next; 0 means three times.
	Attempts int
	// Wait is the time before the second attempt, doubled for each further one; 0 means two seconds.
	Wait time.Duration
	// Progress takes lines for the user; nil for none.
	Progress io.Writer
}

// Fetch places the named runtime under dir and returns the library's path. What is already there with the right hash is
// kept, so a second call costs the hash of one file. progress may be nil.
func Fetch(ctx context.Context, name, dir string, progress io.Writer) (string, error) {
	return (&Fetcher{Progress: progress}).Fetch(ctx, name, dir)
}

// Fetch places the named runtime under dir and returns the library's path.
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
	cache, err := f.cache()
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	// What is here already is good, whichever release it is.
	for _, from := range []string{dir, cache} {
		for _, p := range releases {
			if checkFile(filepath.Join(from, r.place(&p)), p.Library, p.Bytes) == nil {
				return f.install(r, &p, filepath.Join(from, r.place(&p)), dir)
			}
		}
	}
	var failures []error
	for _, p := range releases {
		placed, err := f.release(ctx, r, &p, cache)
		if err == nil {
			return f.install(r, &p, placed, dir)
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

func (f *Fetcher) say(format string, args ...any) {
	if f.Progress != nil {
		fmt.Fprintf(f.Progress, format+"\n", args...)
	}
}

// release fetches one release into the cache, with retries.
func (f *Fetcher) release(ctx context.Context, r *Runtime, p *Release, cache string) (string, error) {
	c, err := findClient(ctx, p.Client)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	f.say("fetching %s %s with %s (%.1f MB)", r.Title, p.Version, p.Client, float64(p.Size)/1e6)
	attempts, wait := cmp.Or(f.Attempts, 3), cmp.Or(f.Wait, 2*time.Second)
	for try := 1; ; try++ {
		path, err := f.once(ctx, r, p, c, cache)
		if err == nil {
			return path, nil
		}
		if ctx.Err() != nil || try == attempts {
			return "", fmt.Errorf("%s, attempt %d of %d: %w", p.Package, try, attempts, err)
		}
		f.say("attempt %d of %d failed: %v", try, attempts, err)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// once fetches, checks and unpacks one release, and places the library in the cache.
func (f *Fetcher) once(ctx context.Context, r *Runtime, p *Release, c client, cache string) (string, error) {
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	archive, err := f.download(ctx, c, p, tmp)
	if err != nil {
		return "", err
	}
	if err := checkFile(archive, p.Archive, p.Size); err != nil {
		return "", err
	}
	lib := filepath.Join(tmp, p.File)
	if err := unpack(archive, p.Member, lib, p.Bytes); err != nil {
		return "", err
	}
	if err := checkFile(lib, p.Library, p.Bytes); err != nil {
		return "", err
	}
	return place(lib, filepath.Join(cache, r.place(p)))
}

// install copies a checked library into dir, unless that is where it is.
func (f *Fetcher) install(r *Runtime, p *Release, from, dir string) (string, error) {
	to := filepath.Join(dir, r.place(p))
	if from == to {
		return to, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".place-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	lib := filepath.Join(tmp, p.File)
	if err := copyFile(from, lib); err != nil {
		return "", err
	}
	if err := checkFile(lib, p.Library, p.Bytes); err != nil {
		return "", err
	}
	f.say("%s %s is in %s", r.Title, p.Version, to)
	return place(lib, to)
}

// place renames a finished file to its place, so that nobody sees half of one.
func place(from, to string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	return to, os.Rename(from, to)
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
