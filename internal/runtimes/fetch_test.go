package runtimes_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
)

const (
	wheel   = "ttfake-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
	member  = "ttfake/libtt.so"
	library = "the library"
)

// wheelBytes is a wheel with one library in it.
func wheelBytes(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		member:                          library,
		"ttfake-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ttfake\nVersion: 1.0\n",
		"ttfake-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux_2_28_x86_64\n",
		"ttfake-1.0.dist-info/RECORD":   "",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// index is a folder that pip uses instead of the network, with a fetcher that knows one fake runtime in it.
func index(t *testing.T, archive []byte) (*runtimes.Fetcher, *runtimes.Release) {
	t.Helper()
	if exec.CommandContext(t.Context(), "python3", "-m", "pip", "--version").Run() != nil {
		preparedtest.Skip(t, "pip", "no python3 with pip")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, wheel), archive, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &runtimes.Fetcher{
		Catalog: []runtimes.Runtime{{
			Name: "ttfake", Title: "Fake Runtime", Sonames: []string{"libtt.so"},
			Releases: []runtimes.Release{{
				Version: "1.0", OS: runtime.GOOS, Arch: runtime.GOARCH, Library: "libtt.so.1.0",
				Archives: []runtimes.Archive{{
					Client: "pip", Package: "ttfake==1.0", Platform: "manylinux_2_28_x86_64",
					Sum: sum(archive), Size: int64(len(archive)),
					Members: []runtimes.Member{{Path: member, File: "libtt.so.1.0", Sum: sum([]byte(library)), Bytes: int64(len(library))}},
				}},
			}},
		}},
		Cache: t.TempDir(), Attempts: 1, Wait: time.Nanosecond,
		Env: []string{"PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + dir, "PIP_CONFIG_FILE=" + os.DevNull},
	}
	return f, &f.Catalog[0].Releases[0]
}

func TestFetch(t *testing.T) {
	t.Parallel()
	f, _ := index(t, wheelBytes(t))
	var progress bytes.Buffer
	f.Progress = &progress
	var transfers []int64
	f.Transfer = func(_ *runtimes.Archive, bytes int64) { transfers = append(transfers, bytes) }
	dir := t.TempDir()
	path, err := f.Fetch(t.Context(), "ttfake", dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(transfers); n < 2 || transfers[n-1] != -1 {
		t.Errorf("the transfers are %v, expected sizes, and -1 at the end", transfers)
	}
	if strings.Contains(progress.String(), "Saved") || strings.Contains(progress.String(), "Looking in links") {
		t.Errorf("the words of the package client are in the progress:\n%s", &progress)
	}
	if want := filepath.Join(dir, "ttfake-1.0", "libtt.so.1.0"); path != want {
		t.Errorf("placed in %s, want %s", path, want)
	}
	check := func(when string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != library {
			t.Errorf("%s the library holds %q, %v", when, got, err)
		}
	}
	check("fetched,")
	for _, want := range []string{"fetching Fake Runtime 1.0 with pip", "ttfake", path} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress does not say %q:\n%s", want, &progress)
		}
	}
	f.Env = []string{"PATH="} // from here on nothing can be fetched
	if again, err := f.Fetch(t.Context(), "ttfake", dir); err != nil || again != path {
		t.Errorf("second Fetch = %s, %v", again, err)
	}
	if err := os.WriteFile(path, []byte("damaged!!!!"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fetch(t.Context(), "ttfake", dir); err != nil {
		t.Errorf("Fetch over a damaged library: %v", err)
	}
	check("repaired,")
	if other, err := f.Fetch(t.Context(), "ttfake", t.TempDir()); err != nil || other == path {
		t.Errorf("Fetch into a second folder = %s, %v", other, err)
	}
}

// A release of several archives and whole folders is placed as one, and a part that is missing brings it anew.
func TestFetchFolder(t *testing.T) {
	t.Parallel()
	f, release := index(t, wheelBytes(t))
	a := release.Archives[0]
	a.Members = []runtimes.Member{{Path: "ttfake/", File: "lib"}, {Path: "ttfake-1.0.dist-info/", File: "."}}
	release.Archives = append(release.Archives, a)
	release.Library = "lib/libtt.so"
	var progress bytes.Buffer
	f.Progress = &progress
	dir := t.TempDir()
	path, err := f.Fetch(t.Context(), "ttfake", dir)
	if err != nil {
		t.Fatal(err)
	}
	if list, _, _ := strings.Cut(progress.String(), "fetching"); strings.Count(list, a.Sum) != 2 || !strings.Contains(list, "2 archives of 0.0 MB together:") {
		t.Errorf("before the download there is no list of the archives with their hashes:\n%s", &progress)
	}
	root := filepath.Join(dir, "ttfake-1.0")
	if path != filepath.Join(root, "lib", "libtt.so") {
		t.Errorf("library %s", path)
	}
	check := func(when string) {
		t.Helper()
		for _, name := range []string{"lib/libtt.so", "libtt.so.1.0", "METADATA", "WHEEL", "RECORD"} {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	check("fetched")
	if err := os.Remove(filepath.Join(root, ".complete")); err != nil {
		t.Fatal(err)
	}
	f.Env = []string{"PATH="}
	if _, err := f.Fetch(t.Context(), "ttfake", dir); err != nil {
		t.Errorf("Fetch with the release in the cache: %v", err)
	}
	check("placed again")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	t.Parallel()
	good := wheelBytes(t)
	for name, tc := range map[string]struct {
		archive []byte
		change  func(*runtimes.Archive)
		want    string
	}{
		"archive hash": {good, func(r *runtimes.Archive) { r.Sum = sum(nil) }, "SHA-256 of " + wheel + ": expected " + sum(nil) + ", found "},
		"archive size": {good, func(r *runtimes.Archive) { r.Size++ }, "size of " + wheel + ": expected "},
		"library hash": {good, func(r *runtimes.Archive) { r.Members[0].Sum = sum(nil) }, "SHA-256 of libtt.so.1.0: expected"},
		"library size": {good, func(r *runtimes.Archive) { r.Members[0].Bytes-- }, "size of libtt.so.1.0: expected 10 bytes, found 11"},
		"no member":    {good, func(r *runtimes.Archive) { r.Members[0].Path = "ttfake/none.so" }, "archive " + wheel + " has no ttfake/none.so"},
		"not a wheel":  {[]byte("not a wheel"), func(*runtimes.Archive) {}, "ttfake"},
		"no folder":    {good, func(r *runtimes.Archive) { r.Members[0].Path = "ttnone/" }, "archive " + wheel + " has no ttnone/"},
		"no package":   {good, func(r *runtimes.Archive) { r.Package = "ttother==1.0" }, "No matching distribution found for ttother==1.0"},
		"no client":    {good, func(r *runtimes.Archive) { r.Client = "cargo" }, "cargo is not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, release := index(t, tc.archive)
			tc.change(&release.Archives[0])
			dir := t.TempDir()
			path, err := f.Fetch(t.Context(), "ttfake", dir)
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != status.Unavailable {
				t.Errorf("Fetch = %q, %v, want an error with %q", path, err, tc.want)
			}
			for _, d := range []string{dir, f.Cache} {
				if left, err := os.ReadDir(d); err != nil || len(left) != 0 {
					t.Errorf("left behind in %s: %v, %v", d, left, err)
				}
			}
		})
	}
}

func TestFetchFallsBack(t *testing.T) {
	t.Parallel()
	f, release := index(t, wheelBytes(t))
	f.Attempts = 2
	bad := *release
	bad.Version, bad.Archives = "2.0", slices.Clone(release.Archives)
	bad.Archives[0].Package = "ttfake==2.0"
	f.Catalog[0].Releases = []runtimes.Release{bad, *release}
	var progress bytes.Buffer
	f.Progress = &progress
	path, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
	if err != nil || !strings.Contains(path, "ttfake-1.0") {
		t.Errorf("Fetch = %q, %v, want the second release", path, err)
	}
	if !strings.Contains(progress.String(), "attempt 1 of 2 failed") {
		t.Errorf("progress does not tell of the retry:\n%s", &progress)
	}
}

func TestFetchWithNPM(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no npm")
	}
	f, release := index(t, wheelBytes(t))
	path := packNPM(t)
	tgz, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := &release.Archives[0]
	a.Client, a.Package, a.Members[0].Path = "npm", path, "package/libtt.so"
	a.Sum, a.Size = sum(tgz), int64(len(tgz))
	f.Env = []string{"npm_config_offline=true"}
	if path, err := f.Fetch(t.Context(), "ttfake", t.TempDir()); err != nil {
		t.Errorf("Fetch = %q, %v", path, err)
	}
}

// packNPM returns the path of an npm package with the library.
func packNPM(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"package.json": `{"name": "ttfake", "version": "1.0.0"}`, "libtt.so": library} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--offline", "--silent")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v: %s", err, out)
	}
	return filepath.Join(folder, "ttfake-1.0.0.tgz")
}

func TestFetchUnknown(t *testing.T) {
	t.Parallel()
	f, release := index(t, wheelBytes(t))
	if _, err := f.Fetch(t.Context(), "nothing", t.TempDir()); err == nil || err.Error() != "unknown runtime 'nothing', expected one of ttfake" {
		t.Errorf("error of an unknown runtime = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Fetch(ctx, "ttfake", t.TempDir()); err == nil {
		t.Error("Fetch with a cancelled context succeeds")
	}
	release.Arch = "none"
	if _, err := f.Fetch(t.Context(), "ttfake", t.TempDir()); status.CodeOf(err) != status.Unsupported {
		t.Errorf("error without a release for this system = %v", err)
	}
}
