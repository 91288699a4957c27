package runtimes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// client is the command line of a package client.
type client []string

// clients are the ways to start each package client, best first.
var clients = map[string][]client{
	"pip": {{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"pip3"}, {"pip"}},
	"npm": {{"npm"}},
}

// clientPackages are the Debian packages of the clients.
var clientPackages = map[string]string{"pip": "python3-pip", "npm": "npm"}

// findClient returns the first working way to start a client.
func findClient(ctx context.Context, name string) (client, error) {
	for _, c := range clients[name] {
		if _, err := exec.LookPath(c[0]); err != nil {
			continue
		}
		probe, cancel := context.WithTimeout(ctx, time.Minute)
		err := exec.CommandContext(probe, c[0], append(c[1:], "--version")...).Run()
		cancel()
		if err == nil {
			return c, nil
		}
	}
	if pkg := clientPackages[name]; pkg != "" {
		return nil, fmt.Errorf("%s is not installed (Debian: apt-get install %s)", name, pkg)
	}
	return nil, fmt.Errorf("%s is not installed", name)
}

// arguments returns the arguments that download an archive into dir. pip gets the platform and a Python version, so
// that any interpreter downloads the same archive.
func (c client) arguments(a *Archive, dir string) []string {
	if a.Client == "npm" {
		return slices.Concat(c[1:], []string{"pack", a.Package, "--loglevel=error", "--pack-destination", dir})
	}
	args := slices.Concat(c[1:], []string{"download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", dir})
	if a.Platform != "" {
		version := cmp.Or(strings.ReplaceAll(a.Python, ".", ""), "311")
		args = append(args, "--platform", a.Platform, "--python-version", version, "--implementation", "cp", "--abi", "cp"+version)
	}
	return append(args, a.Package)
}

// download runs the client in an empty folder below tmp and returns the archive that it wrote.
func (f *Fetcher) download(ctx context.Context, c client, a *Archive, tmp string) (string, error) {
	dir, err := os.MkdirTemp(tmp, "archive-")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, c[0], c.arguments(a, dir)...)
	cmd.Env = append(os.Environ(), f.Env...)
	cmd.WaitDelay = 5 * time.Second
	var words tail
	cmd.Stderr = &words
	if f.Progress != nil {
		// A terminal is passed on unchanged, so that the client draws its progress bar.
		shown := f.Progress
		if _, file := shown.(*os.File); !file {
			shown = &lockedWriter{w: shown}
		}
		cmd.Stdout, cmd.Stderr = shown, io.MultiWriter(shown, &words)
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, words.String())
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%s left %d files, expected one archive", strings.Join(c, " "), len(files))
	}
	return filepath.Join(dir, files[0].Name()), nil
}

// lockedWriter serialises the two output streams of a command.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p under the lock.
func (s *lockedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// tail keeps the end of a command's output.
type tail struct{ buf []byte }

const tailSize = 2048

// Write keeps the last bytes.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - tailSize; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

// String returns the last lines joined to one.
func (t *tail) String() string { return string(bytes.Join(bytes.Fields(t.buf), []byte(" "))) }
