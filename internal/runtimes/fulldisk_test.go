package runtimes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/diskfull/disktest"
)

func TestMain(m *testing.M) { os.Exit(disktest.Main(m)) } //nolint:forbidigo // a main function

// TestFullDiskOfClients checks that a disk that pip or npm fills is named, with what to do, and that a fetch succeeds when there is room again.
func TestFullDiskOfClients(t *testing.T) {
	t.Parallel()
	disktest.Run(t, func(dir string) {
		for _, name := range []string{"pip", "npm"} {
			t.Run(name, func(t *testing.T) { //nolint:paralleltest // they share the disk
				f, release := index(t, wheelBytes(t))
				if a := &release.Archives[0]; name == "npm" {
					if _, err := exec.LookPath("npm"); err != nil {
						t.Skip("no npm")
					}
					tgz := packNPM(t)
					data, err := os.ReadFile(tgz)
					if err != nil {
						t.Fatal(err)
					}
					a.Client, a.Package, a.Members[0].Path, a.Sum, a.Size = "npm", tgz, "package/libtt.so", sum(data), int64(len(data))
					f.Env = []string{"npm_config_offline=true", "npm_config_cache=" + t.TempDir()}
				}
				f.Cache = filepath.Join(dir, name)
				ballast := filepath.Join(dir, "ballast")
				if err := os.Mkdir(f.Cache, 0o700); err != nil {
					t.Fatal(err)
				}
				_ = os.WriteFile(ballast, bytes.Repeat([]byte{1}, 2*disktest.Size), 0o600) // it fills the disk
				_, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
				if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != diskfull.RetryAfter {
					t.Errorf("Fetch = %v, retry after %v", err, status.RetryAfter(err))
				}
				for _, want := range []string{"the disk of '" + f.Cache + "' is full (", ": free space there, or set XDG_CACHE_HOME to a folder of another disk, and try again", name} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q, want %q", err, want)
					}
				}
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
				if _, err := f.Fetch(t.Context(), "ttfake", t.TempDir()); err != nil {
					t.Errorf("when there is room: %v", err)
				}
			})
		}
	})
}
