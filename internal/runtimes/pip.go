package runtimes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// largeArchive is the size from which broken transfers should be resumed.
const largeArchive = 100 << 20

// resumingPip is a release of pip that resumes. It runs from its wheel if the installed pip is older.
var resumingPip = Archive{
	Client: "pip", Package: "pip==26.3",
	Sum: "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13", Size: 1950951,
}

// client returns the command line of an archive's package client.
func (f *Fetcher) client(ctx context.Context, a *Archive, cache string) (client, error) {
	c, err := findClient(ctx, a.Client)
	if err != nil || a.Client != "pip" || a.Size < cmp.Or(f.Large, largeArchive) {
		return c, err
	}
	if c.resumes(ctx) {
		return c, nil
	}
	newer, err := f.newerPip(ctx, c, cache)
	if err != nil {
		f.printf("a broken transfer will start again: pip is too old to resume, and a newer one was not to be had: %v", err)
		return c, nil
	}
	return newer, nil
}

// newerPip returns a pip that resumes, from the cache or downloaded by the installed one.
func (f *Fetcher) newerPip(ctx context.Context, c client, cache string) (client, error) {
	wheel := filepath.Join(cache, "pip-26.3-py3-none-any.whl")
	if checkFile(wheel, resumingPip.Sum, resumingPip.Size) != nil {
		tmp, err := os.MkdirTemp(cache, ".fetch-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(tmp)
		path, err := f.download(ctx, c, &resumingPip, tmp)
		if err != nil {
			return nil, err
		}
		if err := checkFile(path, resumingPip.Sum, resumingPip.Size); err != nil {
			return nil, err
		}
		if err := os.Rename(path, wheel); err != nil {
			return nil, err
		}
	}
	newer := client{c.interpreter(), filepath.Join(wheel, "pip")}
	if !newer.resumes(ctx) {
		return nil, fmt.Errorf("%s does not run it", newer[0])
	}
	return newer, nil
}

// interpreter returns the Python that runs another pip.
func (c client) interpreter() string {
	if strings.HasPrefix(filepath.Base(c[0]), "python") {
		return c[0]
	}
	return "python3"
}

// resumes reports whether pip is 25.3 or newer, which resumes broken transfers by default.
func (c client) resumes(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, c[0], append(c[1:], "--version")...).Output()
	if err != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "pip %d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 25 || major == 25 && minor >= 3
}
