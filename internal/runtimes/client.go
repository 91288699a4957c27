package runtimes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
)

// client is the command line of a package client.
type client []string

// clients are the ways to start each package client, best first.
var clients = map[string][]client{
	"pip": {{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"pip3"}, {"pip"}},
	"npm": {{"npm"}},
	"mvn": {{"mvn"}},
}

// clientPackages are the Debian packages of the clients.
var clientPackages = map[string]string{"pip": "python3-pip", "npm": "npm", "mvn": "maven"}

// findClient returns the first working way to start a client.
func findClient(ctx context.Context, name string) (client, error) {
	for _, c := range clients[name] {
		if c.version(ctx) != "" {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s is not installed (Debian: apt-get install %s)", name, clientPackages[name])
}

// version returns what the client prints about its version, or "" when it does not work.
func (c client) version(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, c[0], append(c[1:], "--version")...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// arguments returns the arguments that download an archive into dir. pip gets the platform and a Python version, so
// that any interpreter downloads the same archive. Maven gets a repository of its own beside dir, so that no second copy
// stays in the user's.
func (c client) arguments(a *Archive, dir string) []string {
	if a.Client == "npm" {
		return slices.Concat(c[1:], []string{"pack", a.Package, "--loglevel=error", "--pack-destination", dir})
	}
	if a.Client == "mvn" {
		return slices.Concat(c[1:], []string{
			"--batch-mode", "--quiet", "-Dmaven.repo.local=" + dir + "-maven", "dependency:copy", "-Dartifact=" + a.Package, "-DoutputDirectory=" + dir,
		})
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
	parts := dir + "-parts" // the client's temporary files, which grow during the download
	if err := os.Mkdir(parts, 0o700); err != nil {
		return "", err
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+parts)
	var words bytes.Buffer // the client's own progress is not for the user: see Transfer
	cmd.Stderr = &words
	defer f.watch(a, dir, parts)()
	if err := cmd.Run(); err != nil {
		const most = 2048 // of the end of the client's errors, joined to one line
		text := words.String()
		if full := fullWords(text); full != nil {
			err = fmt.Errorf("%w (%w)", err, full)
		}
		text = text[max(0, len(text)-most):]
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, strings.Join(strings.Fields(text), " "))
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

// fullWords returns the error that a package client means: a program has only its words to say that a disk is full. Python's are "No space left on
// device" and "Disk quota exceeded", node's the names of the errors.
func fullWords(text string) error {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.Contains(strings.ToLower(text), errno.Error()) || strings.Contains(text, unix.ErrnoName(errno)) {
			return errno
		}
	}
	return nil
}

// watchInterval is the time between two looks at a download.
const watchInterval = 200 * time.Millisecond

// watch reports the size of a download to Transfer until the returned function is called.
func (f *Fetcher) watch(a *Archive, folders ...string) (stop func()) {
	if f.Transfer == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			f.Transfer(a, sizeOf(folders))
			select {
			case <-tick.C:
			case <-done:
				f.Transfer(a, -1)
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// sizeOf returns the size of the files below folders. The client may create and remove some meanwhile.
func sizeOf(folders []string) (size int64) {
	for _, folder := range folders {
		_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil //nolint:nilerr // it has been removed
			}
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
	}
	return size
}

// resumingPip is a release of pip that resumes. It runs from its wheel if the installed pip is older.
var resumingPip = Archive{
	Client: "pip", Package: "pip==26.3",
	Sum: "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13", Size: 1950951,
}

// client returns the command line of an archive's package client.
func (f *Fetcher) client(ctx context.Context, a *Archive, cache string) (client, error) {
	c, err := findClient(ctx, a.Client)
	if err != nil || a.Client != "pip" || a.Size < cmp.Or(f.Large, 100<<20) {
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
	newer := client{"python3", filepath.Join(wheel, "pip")}
	if strings.HasPrefix(filepath.Base(c[0]), "python") {
		newer[0] = c[0]
	}
	if !newer.resumes(ctx) {
		return nil, fmt.Errorf("%s does not run it", newer[0])
	}
	return newer, nil
}

// resumes reports whether pip is 25.3 or newer, which resumes broken transfers by default.
func (c client) resumes(ctx context.Context) bool {
	var major, minor int
	_, err := fmt.Sscanf(c.version(ctx), "pip %d.%d", &major, &minor)
	return err == nil && (major > 25 || major == 25 && minor >= 3)
}

// interpreter is a Python of the machine, outside any environment.
type interpreter struct {
	path    string
	version string // major and minor. For example, 3.11
}

// pythonCommands are the names of interpreters, best first.
var pythonCommands = []string{"python3", "python", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9"}

// describePython prints what interpreterOf parses. In an environment it names the base interpreter.
const describePython = `import os, sys
kind = sys.implementation.name + sys.abiflags
print(kind, "%d.%d" % sys.version_info[:2], os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))`

// interpreterOf describes the interpreter that a command runs. It reports false unless that is a plain CPython.
func interpreterOf(ctx context.Context, command string) (found interpreter, ok bool) {
	out, err := exec.CommandContext(ctx, command, "-c", describePython).Output()
	if err != nil {
		return interpreter{}, false
	}
	fields := strings.SplitN(strings.TrimSpace(string(out)), " ", 3)
	if len(fields) != 3 || fields[0] != "cpython" {
		return interpreter{}, false
	}
	return interpreter{path: fields[2], version: fields[1]}, true
}

// forInterpreter keeps the releases for the first interpreter of this machine that any release supports.
func (r *Runtime) forInterpreter(ctx context.Context, releases []Release) ([]Release, error) {
	var seen []string
	for _, command := range pythonCommands {
		base, ok := interpreterOf(ctx, command)
		if !ok {
			continue
		}
		fit := slices.DeleteFunc(slices.Clone(releases), func(p Release) bool { return p.Python != base.version })
		for i := range fit {
			fit[i].base = base
		}
		if len(fit) > 0 {
			return fit, nil
		}
		seen = append(seen, base.path+" of version "+base.version)
	}
	if len(seen) == 0 {
		return nil, status.Errorf(status.Unavailable,
			"%s is made on the machine's Python, and there is none: install python3 with pip (Debian: apt-get install python3 python3-pip), or set %s to a Python with its packages",
			r.Title, r.Env())
	}
	return nil, status.Errorf(status.Unsupported, "no pinned packages for the Pythons found (%s), expected one of %s to %s: set %s to a Python with the packages of %s",
		strings.Join(seen, ", "), releases[len(releases)-1].Python, releases[0].Python, r.Env(), r.Title)
}

// environment turns dir into a virtual environment on base. It contains no path of its own, so it may be moved.
func (base interpreter) environment(dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{"python3": base.path, "python": "python3"} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	text := "home = " + filepath.Dir(base.path) + "\ninclude-system-site-packages = false\nversion = " + base.version + "\n"
	return os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte(text), 0o644) //nolint:gosec // users of the machine may read it
}
