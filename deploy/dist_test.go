package deploy_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// These tests install and run what scripts/dist has made: make test-dist.

// machines are the platforms of a release, with the names of their processors elsewhere.
var machines = map[string]struct {
	python string
	elf    elf.Machine
}{"amd64": {"x86_64", elf.EM_X86_64}, "arm64": {"aarch64", elf.EM_AARCH64}}

// dist returns the folder that scripts/dist has filled, and the platforms in it. It skips the test without one.
func dist(t *testing.T) (string, []string) {
	t.Helper()
	dir := preparedtest.Path(t, "dist", func() (string, error) {
		_, err := os.Stat("../dist/SHA256SUMS")
		return "../dist", err
	})
	var platforms []string
	for arch := range machines {
		if _, err := os.Stat(filepath.Join(dir, archiveName(arch)+".tar.gz")); err == nil {
			platforms = append(platforms, arch)
		}
	}
	if len(platforms) == 0 {
		t.Fatalf("%s has no archive", dir)
	}
	return dir, platforms
}

func archiveName(arch string) string { return "tutti-" + tutti.Version + "-linux-" + arch }
func debName(arch string) string     { return "tutti_" + tutti.Version + "-1_" + arch + ".deb" }

func wheelName(arch string) string {
	return "tutti_server-" + tutti.Version + "-py3-none-manylinux_2_28_" + machines[arch].python + ".whl"
}

// programs of an archive.
var programs = []string{"tutti", "tutti-temporal"}

// unpack unpacks the archive of a platform, and returns its folder. It checks that the files belong to root and may be read by all.
func unpack(t *testing.T, dir, arch string) string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, archiveName(arch)+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(to, archiveName(arch))
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 || h.Mode&0o444 != 0o444 {
			t.Errorf("%s belongs to %d:%d with mode %o", h.Name, h.Uid, h.Gid, h.Mode)
		}
		path := filepath.Join(to, h.Name) //nolint:gosec // our archive
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o750)
		} else {
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, text, h.FileInfo().Mode()) //nolint:gosec // our archive
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDistChecksums checks that SHA256SUMS has every file, with its sum, and that no kind of file is missing.
func TestDistChecksums(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	var want []string
	for _, arch := range platforms {
		want = append(want, archiveName(arch)+".tar.gz", debName(arch), wheelName(arch), archiveName(arch)+".cdx.json", "tutti-temporal-"+tutti.Version+"-linux-"+arch+".cdx.json")
	}
	for _, name := range want {
		file, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != sums[name] {
			t.Errorf("%s has the sum %x, and SHA256SUMS %q", name, sum, sums[name])
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(want)+1 || len(sums) != len(want) {
		t.Errorf("%d files, %d sums, want %d: %v", len(entries)-1, len(sums), len(want), err)
	}
}

// TestDistPrograms checks the programs of each platform: they are for its processor, stripped, and need nothing but glibc 2.28.
func TestDistPrograms(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	for _, arch := range platforms {
		folder := unpack(t, dir, arch)
		for _, name := range programs {
			file, err := elf.Open(filepath.Join(folder, "bin", name))
			if err != nil {
				t.Fatal(err)
			}
			if file.Machine != machines[arch].elf {
				t.Errorf("%s for %s is for %s", name, arch, file.Machine)
			}
			if file.Section(".symtab") != nil || file.Section(".debug_info") != nil || file.Section(".zdebug_info") != nil {
				t.Errorf("%s for %s is not stripped", name, arch)
			}
			checkLibraries(t, file, name+" for "+arch)
			_ = file.Close()
		}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "THIRD_PARTY_LICENSES", "tutti.service", "tutti.socket", "tutti.env", "share/man/man1/tutti-infer.1"} {
			if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// checkLibraries checks that a program needs no library but those of glibc, in versions up to 2.28.
func checkLibraries(t *testing.T, file *elf.File, name string) {
	t.Helper()
	libraries, err := file.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	for _, l := range libraries {
		if !regexp.MustCompile(`^(lib(c|m|dl|pthread|resolv|rt)\.so\.\d|ld-linux.*)$`).MatchString(l) {
			t.Errorf("%s needs %s", name, l)
		}
	}
	symbols, err := file.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	for _, s := range symbols {
		m := regexp.MustCompile(`^GLIBC_2\.(\d+)`).FindStringSubmatch(s.Version)
		if m == nil {
			continue // not versioned
		}
		if minor, err := strconv.Atoi(m[1]); err != nil || minor > 28 {
			t.Errorf("%s needs %s of %s", name, s.Name, s.Version)
		}
	}
}

// TestDistLicences checks that the list of licences names every module of the programs.
func TestDistLicences(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	for _, arch := range platforms {
		folder := unpack(t, dir, arch)
		text, err := os.ReadFile(filepath.Join(folder, "THIRD_PARTY_LICENSES"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			for _, module := range modulesOf(t, filepath.Join(folder, "bin", name)) {
				if !strings.Contains(string(text), "\n"+strings.Replace(module, "@", " ", 1)+"\n") {
					t.Errorf("%s for %s: no licence of %s", name, arch, module)
				}
			}
		}
	}
}

// modulesOf returns the modules of a program as PATH@VERSION.
func modulesOf(t *testing.T, program string) (names []string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil || len(info.Deps) < 20 {
		t.Fatalf("%s has %d modules: %v", program, len(info.Deps), err)
	}
	for _, m := range info.Deps {
		names = append(names, m.Path+"@"+m.Version)
	}
	return names
}

// TestDistComponents checks that the SBOM of a program names its modules, each with a checksum, and most with a licence that was recognised.
func TestDistComponents(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	type component struct {
		Name, Version string
		Hashes        []struct{ Alg string }
		Evidence      struct{ Licenses []any }
	}
	for _, arch := range platforms {
		folder := unpack(t, dir, arch)
		for _, name := range programs {
			text, err := os.ReadFile(filepath.Join(dir, name+"-"+tutti.Version+"-linux-"+arch+".cdx.json"))
			if err != nil {
				t.Fatal(err)
			}
			var sbom struct {
				BOMFormat  string
				Metadata   struct{ Component component }
				Components []component
			}
			if err := json.Unmarshal(text, &sbom); err != nil || sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component.Version != "v"+tutti.Version {
				t.Fatalf("%s: %v: %+v", name, err, sbom.Metadata)
			}
			listed, licensed := map[string]bool{}, 0
			for _, c := range sbom.Components {
				listed[c.Name+"@"+c.Version] = len(c.Hashes) > 0
				if len(c.Evidence.Licenses) > 0 {
					licensed++
				}
			}
			modules := modulesOf(t, filepath.Join(folder, "bin", name))
			for _, m := range modules {
				if !listed[m] {
					t.Errorf("the SBOM of %s for %s does not have %s with its hash", name, arch, m)
				}
			}
			t.Logf("%s for %s: %d modules, %d components, %d with a recognised licence", name, arch, len(modules), len(sbom.Components), licensed)
			if licensed*10 < len(modules)*9 {
				t.Errorf("%s for %s: the licences of %d of %d modules are known", name, arch, licensed, len(modules))
			}
		}
	}
}

// TestDistDeb checks the deb package: its fields, and that its files are those of the archive.
func TestDistDeb(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb: ", err)
	}
	for _, arch := range platforms {
		deb, folder, root := filepath.Join(dir, debName(arch)), unpack(t, dir, arch), t.TempDir()
		fields, err := run(t, nil, "dpkg-deb", "--field", deb)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Package: tutti\n", "Version: " + tutti.Version + "-1\n", "Architecture: " + arch + "\n", "Depends: libc6 (>= 2.28)\n"} {
			if !strings.Contains("\n"+string(fields), "\n"+want) {
				t.Errorf("%s has no %q in\n%s", deb, want, fields)
			}
		}
		if _, err := run(t, nil, "dpkg-deb", "--extract", deb, root); err != nil {
			t.Fatal(err)
		}
		for path, from := range map[string]string{
			"usr/bin/tutti": "bin/tutti", "usr/bin/tutti-temporal": "bin/tutti-temporal", "usr/lib/systemd/system/tutti.service": "tutti.service", "usr/lib/systemd/system/tutti.socket": "tutti.socket",
			"etc/tutti/tutti.env": "tutti.env", "usr/share/doc/tutti/README.md": "README.md",
			"usr/share/bash-completion/completions/tutti": "share/bash-completion/completions/tutti", "usr/share/zsh/vendor-completions/_tutti": "share/zsh/vendor-completions/_tutti",
			"usr/share/fish/vendor_completions.d/tutti.fish": "share/fish/vendor_completions.d/tutti.fish",
		} {
			a, err := os.ReadFile(filepath.Join(root, path))
			b, other := os.ReadFile(filepath.Join(folder, from))
			if err := errors.Join(err, other); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s is not %s of the archive: %v", path, from, err)
			}
		}
		pages, err := filepath.Glob(filepath.Join(folder, "share/man/man1/*.1"))
		if err != nil || len(pages) == 0 {
			t.Errorf("%s has no manual pages (%v)", folder, err)
		}
		for _, page := range pages {
			if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1", filepath.Base(page)+".gz")); err != nil {
				t.Error(err)
			}
		}
		if os.Getuid() == 0 {
			installDeb(t, deb, arch)
		}
		if _, err := exec.LookPath("systemd-analyze"); err == nil && arch == runtime.GOARCH {
			verifyUnit(t, filepath.Join(root, "usr/lib/systemd/system/tutti.service"), filepath.Join(root, "usr/bin/tutti"))
		}
	}
}

// installDeb installs and removes the package in a folder with an empty database of packages.
func installDeb(t *testing.T, deb, arch string) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"updates", "info", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) []byte {
		out, err := run(t, nil, "dpkg", append([]string{"--root=" + root, "--force-depends", "--force-architecture", "--force-script-chrootless", "--log=/dev/null"}, args...)...)
		if err != nil {
			t.Fatalf("%s for %s", args, arch)
		}
		return out
	}
	dpkg("--install", deb)
	if status := dpkg("--status", "tutti"); !bytes.Contains(status, []byte("Status: install ok installed")) || !bytes.Contains(status, []byte(" /etc/tutti/tutti.env ")) {
		t.Errorf("the package's status is\n%s", status)
	}
	dpkg("--purge", "tutti")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/tutti")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the program is left: %v", err)
	}
}

// TestDistWheel installs the wheel of this machine and runs its Server, and compares the programs of the others' with their archives.
func TestDistWheel(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	for _, arch := range platforms {
		folder := unpack(t, dir, arch)
		wheel, err := zip.OpenReader(filepath.Join(dir, wheelName(arch)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			a, err := fs.ReadFile(wheel, "tutti_server-"+tutti.Version+".data/scripts/"+name)
			b, other := os.ReadFile(filepath.Join(folder, "bin", name))
			if err := errors.Join(err, other); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s for %s is not that of the archive: %v", name, arch, err)
			}
		}
		_ = wheel.Close()
	}
	if slices.Contains(platforms, runtime.GOARCH) {
		checkServer(t, installWheel(t, filepath.Join(dir, wheelName(runtime.GOARCH))))
	}
}

// TestDistVersion runs the programs of this machine's archive: they know their commit.
func TestDistVersion(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	if !slices.Contains(platforms, runtime.GOARCH) {
		t.Skip("no archive for this machine")
	}
	folder := unpack(t, dir, runtime.GOARCH)
	out, err := run(t, nil, filepath.Join(folder, "bin/tutti"), "version")
	want := regexp.MustCompile(`^tutti ` + regexp.QuoteMeta(tutti.Version) + `\ncommit    [0-9a-f]{40}( with changes)?\ndate      \d{4}-\S+Z\ngo        go1\.\S+\nplatform  linux/` + runtime.GOARCH + `\n$`)
	if err != nil || !want.Match(out) {
		t.Errorf("tutti version printed %q, %v", out, err)
	}
	if out, err := run(t, nil, filepath.Join(folder, "bin/tutti-temporal"), "--version"); err != nil || len(out) == 0 {
		t.Errorf("tutti-temporal --version printed %q, %v", out, err)
	}
}

// TestInstallPage runs the commands of the page, in a copy of dist/; those of Go in the root of the checkout.
func TestInstallPage(t *testing.T) {
	t.Parallel()
	dir, platforms := dist(t)
	if !slices.Contains(platforms, runtime.GOARCH) {
		t.Skip("no archive for this machine")
	}
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("amd64", runtime.GOARCH, "x86_64", machines[runtime.GOARCH].python, "python3 ", python(t)+" ")
	commands := regexp.MustCompile(`(?m)^\$ (.+)$`).FindAllSubmatch(page, -1)
	if len(commands) < 10 {
		t.Fatalf("%d commands on the page", len(commands))
	}
	for _, c := range commands {
		command := names.Replace(string(c[1]))
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "GOBIN="+work)
		if strings.HasPrefix(command, "go ") {
			cmd.Dir = ".."
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	code := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	cmd := exec.CommandContext(t.Context(), filepath.Join(work, "venv/bin/python"), "-c", string(code[1]))
	cmd.Dir, cmd.Env = work, append(os.Environ(), "PYTHONPATH="+preparedtest.Script(t, "conformance-clients", "prepare-conformance", "clients"))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "text\n" {
		t.Errorf("the page's Python printed %q, %v", out, err)
	}
}
