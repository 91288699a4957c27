package runtimes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// pythonLibrary is the interpreter below an environment's folder.
const pythonLibrary = "bin/python"

// python is a virtual environment with numpy and pip on the machine's interpreter. It is created here because
// Debian packages the module venv separately.
func python() Runtime {
	return Runtime{
		Name: "python", Title: "Python with numpy", Variable: "TUTTI_PYTHON", Setting: "python-runtime",
		Releases: slices.Concat(pythonReleases("amd64", "x86_64", []numpyWheel{
			{"3.14", "2.4.6", "manylinux_2_28", "a2c306dea656c12c68f51f4cea133cbe78ca7435eb28c735eac1d3ebe73be6e8", 16638245},
			{"3.13", "2.4.6", "manylinux_2_28", "a7830bab239b79cda9c08c2da014761cafb48da6150e1da17ac06283f43b6089", 16633220},
			{"3.12", "2.4.6", "manylinux_2_28", "90f9849678c75fe7afa2d348ac842c168b0a4d3d61919687216dfc547976d853", 16645538},
			{"3.11", "2.4.6", "manylinux_2_28", "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93", 16918164},
			{"3.10", "2.2.6", "manylinux_2_17", "fc7b73d02efb0e18c000e9ad8b83480dfcd5dfd11065997ed4c6747470ae8915", 16801050},
			{"3.9", "2.0.2", "manylinux_2_17", "f26b258c385842546006213344c50655ff1555a9338e2e5e02a0756dc3e803dd", 19526099},
		}), pythonReleases("arm64", "aarch64", []numpyWheel{
			{"3.14", "2.4.6", "manylinux_2_28", "40fdc1ae7125e518ea98e53e69a4ebc27e1fd50510c47b7ea130cf21e5e1d42b", 15685197},
			{"3.13", "2.4.6", "manylinux_2_28", "72fbe16c6fac95aedf5937fa873445cec2110be35d8a4e9433d7501fd98dae6b", 15669392},
			{"3.12", "2.4.6", "manylinux_2_28", "5f9fb9157b4ce2971008323afe46053787b526ef624fea915b261468a8421a0f", 15671012},
			{"3.11", "2.4.6", "manylinux_2_28", "0ab0a9c4ffb1a6d95ef519fe4247dba8eb6b18ad93999f76b7f657039acabd47", 15966692},
			{"3.10", "2.2.6", "manylinux_2_17", "efd28d4e9cd7d7a8d39074a4d44c63eda73401580c5c76acda2ce969e0a38e83", 14297320},
			{"3.9", "2.0.2", "manylinux_2_17", "1e795a8be3ddbac43274f18588329c72939870a16cae810c2b73461c40718ab1", 13912596},
		})),
	}
}

// numpyWheel is a numpy wheel for one version of Python.
type numpyWheel struct {
	python, version, platform, sum string
	size                           int64
}

// pythonReleases returns environments with these wheels. arch is Go's name of the architecture, machine the
// wheels'.
func pythonReleases(arch, machine string, wheels []numpyWheel) []Release {
	var list []Release
	for i := range wheels {
		w := &wheels[i]
		numpy := Archive{
			Client: "pip", Package: "numpy==" + w.version, Platform: w.platform + "_" + machine, Python: w.python, Sum: w.sum, Size: w.size,
		}
		pip, version := resumingPip, "26.3"
		if w.python == "3.9" { // the last pip for Python 3.9
			pip = Archive{Client: "pip", Package: "pip==25.3", Sum: "9655943313a94722b7774661c21049070f6bbb0a1516bf02f7c8d5d9201514cd", Size: 1778622}
			version = "25.3"
		}
		site := "lib/python" + w.python + "/site-packages/"
		numpy.Members = packageMembers(site, "numpy", "numpy.libs", "numpy-"+w.version+".dist-info")
		pip.Members = packageMembers(site, "pip", "pip-"+version+".dist-info")
		list = append(list, Release{
			Version: w.python + "-numpy-" + w.version, OS: "linux", Arch: arch, Python: w.python, Library: pythonLibrary,
			Archives: []Archive{numpy, pip},
		})
	}
	return list
}

// packageMembers are folders of a wheel, unpacked into site-packages.
func packageMembers(site string, names ...string) []Member {
	var list []Member
	for _, name := range names {
		list = append(list, Member{Path: name + "/", File: site + name})
	}
	return list
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
			"%s is made on the machine's Python, and there is none: install python3 with pip (Debian: apt-get install python3 python3-pip), or set %s to a Python with numpy",
			r.Title, r.Env())
	}
	return nil, status.Errorf(status.Unsupported, "no pinned packages for the Pythons found (%s), expected one of 3.9 to 3.14: set %s to a Python with numpy",
		strings.Join(seen, ", "), r.Env())
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
