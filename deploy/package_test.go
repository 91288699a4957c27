package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/cmd"
	"github.com/tutti-server/tutti/internal/options"
)

// unit returns the settings of a systemd unit, by "SECTION.NAME"; those that are given several times in their order.
func unit(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !ok || section == "":
			t.Fatalf("the unit has a line %q", line)
		default:
			settings[section+"."+name] = append(settings[section+"."+name], value)
		}
	}
	return settings
}

// TestUnit checks that the unit restricts the server, and names options, folders and programs that exist.
func TestUnit(t *testing.T) {
	t.Parallel()
	settings := unit(t, "package/tutti.service")
	for name, want := range map[string]string{
		"Service.Type": "notify", "Service.TimeoutStartSec": "infinity", "Service.ExecReload": "/bin/kill -USR2 $MAINPID", "Service.ExecStart": "/usr/bin/tutti serve", "Service.DynamicUser": "yes", "Service.ProtectSystem": "strict", "Service.NoNewPrivileges": "yes",
		"Service.EnvironmentFile": "-/etc/tutti/tutti.env", "Service.ProtectHome": "yes", "Service.PrivateTmp": "yes", "Install.WantedBy": "multi-user.target",
	} {
		if got := settings[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"ProtectClock", "PrivateDevices", "DevicePolicy"} {
		if got := settings["Service."+name]; got != nil {
			t.Errorf("%s=%s hides GPUs", name, got)
		}
	}
	file, err := os.ReadFile("package/tutti.env")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range options.Flags() {
		known[f.Env()] = true
	}
	names := regexp.MustCompile(`TUTTI_[A-Z_]+`).FindAllString(strings.Join(settings["Service.Environment"], " ")+string(file), -1)
	if len(names) < 4 {
		t.Errorf("the unit sets %q", names)
	}
	for _, name := range names {
		if !known[name] {
			t.Errorf("%s is no option", name)
		}
	}
	writable := strings.Fields(strings.Join(settings["Service.StateDirectory"], " "))
	for _, m := range regexp.MustCompile(`/var/lib/(\S+)`).FindAllStringSubmatch(strings.Join(settings["Service.Environment"], " "), -1) {
		if !slices.Contains(writable, m[1]) {
			t.Errorf("the unit names /var/lib/%s and does not make it", m[1])
		}
	}
}

// TestSocketUnit checks that the socket unit has the ports that the server has by default, by which it finds its services.
func TestSocketUnit(t *testing.T) {
	t.Parallel()
	o := options.Default()
	settings := unit(t, "package/tutti.socket")
	for name, want := range map[string][]string{
		"Socket.ListenStream": {strconv.Itoa(o.HTTP.Port), strconv.Itoa(o.GRPC.Port), strconv.Itoa(o.Metrics.Port)}, "Socket.Service": {"tutti.service"}, "Socket.FileDescriptorName": nil,
	} {
		if got := settings[name]; !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestUnitVerify checks the unit with systemd's own check, with a program that exists.
func TestUnitVerify(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze: ", err)
	}
	verifyUnit(t, "package/tutti.service", "/bin/true")
	verifySocket(t, "package")
}

// verifySocket runs systemd-analyze verify on the socket unit of a folder, beside its service.
func verifySocket(t *testing.T, folder string) {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"tutti.socket", "tutti.service"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), bytes.ReplaceAll(text, []byte("/usr/bin/tutti "), []byte("/bin/true ")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", filepath.Join(to, "tutti.socket"))
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("tutti.")) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

// verifyUnit runs systemd-analyze verify on a unit whose program is replaced.
func verifyUnit(t *testing.T, file, program string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tutti.service")
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte("/usr/bin/tutti "), []byte(program+" ")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("tutti.service")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestServesUnitEnvironment checks that a server starts with the environment of the unit, whose repository is empty at first.
func TestServesUnitEnvironment(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	env := strings.Fields(strings.ReplaceAll(strings.Join(unit(t, "package/tutti.service")["Service.Environment"], " "), "/var/lib/tutti", state))
	if err := os.Mkdir(filepath.Join(state, "models"), 0o750); err != nil {
		t.Fatal(err)
	}
	args := []string{"--http-port=0", "--grpc-port=0", "--metrics-port=0", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"}
	s, err := tutti.Open(t.Context(), tutti.Settings{Args: args, Env: env, Components: cmd.Builtin()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Start(), s.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
}

// nfpmFile is the file of the deb package.
type nfpmFile struct {
	Arch, Version, Maintainer, License, Section string
	Scripts                                     map[string]string
	Contents                                    []struct {
		Src, Dst, Type string
		Info           struct{ Mode fs.FileMode } `yaml:"file_info"`
	}
}

// TestDebFile checks that the deb package has the programs, the unit and the licences, that the unit's paths are in it, and that what it
// names exists or is made by scripts/dist.
func TestDebFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("package/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f nfpmFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../scripts/dist")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := os.ReadFile("../internal/cli/manpages/main.go") // what fills ${FOLDER}/share
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{}
	for _, c := range f.Contents {
		modes[c.Dst] = c.Info.Mode
		if own, ok := strings.CutPrefix(c.Src, "deploy/"); ok {
			if _, err := os.Stat(own); err != nil {
				t.Error(err)
			}
		} else if path, ok := strings.CutPrefix(c.Src, "${FOLDER}/share/"); ok {
			if !strings.Contains(string(shared), `"`+path+`"`) {
				t.Errorf("internal/cli/manpages does not make %s", c.Src)
			}
		} else if base := filepath.Base(c.Src); !strings.Contains(string(script), strings.TrimSuffix(base, ".gz")) && !strings.Contains(c.Src, "/bin/") {
			t.Errorf("scripts/dist does not make %s", c.Src)
		}
		if c.Dst == "/etc/tutti/tutti.env" && c.Type != "config|noreplace" {
			t.Errorf("%s is of type %q: an update would replace the user's", c.Dst, c.Type)
		}
	}
	for path, mode := range map[string]fs.FileMode{
		"/usr/bin/tutti": 0o755, "/usr/bin/tutti-temporal": 0o755, "/usr/lib/systemd/system/tutti.service": 0o644, "/etc/tutti/tutti.env": 0o644,
		"/usr/share/doc/tutti/copyright": 0o644, "/usr/share/doc/tutti/THIRD_PARTY_LICENSES.gz": 0o644,
	} {
		if modes[path] != mode {
			t.Errorf("%s has mode %o, want %o", path, modes[path], mode)
		}
	}
	if f.Version != "${VERSION}" || f.Arch != "${ARCH}" || f.Maintainer == "" || f.License != "Apache-2.0" || len(f.Scripts) != 3 {
		t.Errorf("the package is %+v", f)
	}
	for _, path := range f.Scripts {
		if _, err := run(t, nil, "sh", "-n", filepath.Join("..", path)); err != nil {
			t.Error(err)
		}
	}
}

// TestDistPlatforms checks that scripts/dist refuses a platform that it does not build for, and leaves the files of the last time.
func TestDistPlatforms(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "../scripts/dist", "linux/amd64", "linux/riscv64").CombinedOutput()
	const want = "dist: the platform is 'linux/riscv64', expected linux/amd64 or linux/arm64\n"
	if err == nil || string(out) != want {
		t.Errorf("printed %q, %v, want %q", out, err, want)
	}
}

// TestLicences checks that each licence is printed once, with the modules that are under it, and that a module without one is an error.
func TestLicences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/LICENSE": "terms A", "a/sub/COPYING.txt": "terms of a part", "a/sub/licence.go": "code", "a/other/LICENSE": "of what is not in the program",
		"b/License.md": "terms A", "c/c.go": "code", "given": "terms C", "else": "terms E",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var list strings.Builder
	for _, p := range [][4]string{{"x/a", "v1", "a", "a/sub/deep"}, {"x/b", "v2", "b", "b"}, {"x/c", "v3", "c", "c"}, {"ours", "", "", ""}} {
		if err := os.MkdirAll(filepath.Join(dir, p[3]), 0o755); err != nil {
			t.Fatal(err)
		}
		list.WriteString(p[0] + "\t" + p[1] + "\t" + filepath.Join(dir, p[2]) + "\t" + filepath.Join(dir, p[3]) + "\n\n")
	}
	licences := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), python(t), append([]string{"-B", "package/licences.py"}, args...)...)
		cmd.Stdin = strings.NewReader(list.String())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := licences(); err == nil || !strings.Contains(out, "the module x/c v3 has no file with its licence: give one as x/c=FILE") {
		t.Errorf("without a licence of x/c: %v\n%s", err, out)
	}
	out, err := licences("x/c="+filepath.Join(dir, "given"), "E="+filepath.Join(dir, "else"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"x/a v1\nx/b v2\n====", "x/a v1\n====", "x/c v3\n====", "E\n====", "terms of a part", "terms C", "terms E"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Count(out, "terms A") != 1 || strings.Contains(out, "code") || strings.Contains(out, "not in the program") || strings.Contains(out, "ours") {
		t.Errorf("printed\n%s", out)
	}
}

// TestRepositoryFiles checks the files for contributors: each link leads to a file, the workflow runs .ci/run, and the forms of issues have
// fields.
func TestRepositoryFiles(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md", "../docs/install.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	var workflow struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	decodeYAML(t, "../.github/workflows/ci.yml", &workflow)
	if steps := workflow.Jobs["run"].Steps; len(steps) == 0 || steps[len(steps)-1].Run != ".ci/run" {
		t.Errorf("the workflow has the steps %+v", steps)
	}
	if info, err := os.Stat("../.ci/run"); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf(".ci/run cannot be run: %v", err)
	}
	for _, form := range []string{"bug", "feature"} {
		var f struct {
			Name, Description string
			Body              []struct{ Type, ID string }
		}
		decodeYAML(t, "../.github/ISSUE_TEMPLATE/"+form+".yml", &f)
		if f.Name == "" || f.Description == "" || len(f.Body) < 2 || f.Body[0].Type != "textarea" || f.Body[0].ID == "" {
			t.Errorf("the form %s is %+v", form, f)
		}
	}
}

func decodeYAML(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
