package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// models is a repository of native steps.
const models = "kserve/models"

// python returns the Python that packages are installed for.
func python(t *testing.T) string {
	t.Helper()
	return preparedtest.Path(t, "pip", func() (string, error) { return exec.LookPath("python3") })
}

// packWheel packs a program as a wheel for this machine, and returns its path.
func packWheel(t *testing.T, program []byte) string {
	t.Helper()
	folder, dist := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"bin/tutti": program, "LICENSE": []byte("ours"), "THIRD_PARTY_LICENSES": []byte("theirs")} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python(t), "-B", "package/wheel.py", "1.2.3", "amd64", "2.17", folder, dist)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := filepath.Join(dist, "tutti_server-1.2.3-py3-none-manylinux_2_17_x86_64.whl")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// installWheel installs a wheel into a new virtual environment, without a network, and returns the environment's Python.
func installWheel(t *testing.T, wheel string) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	if _, err := run(t, nil, python(t), "-m", "venv", "--without-pip", venv); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(venv, "bin", "python")
	cmd := exec.CommandContext(t.Context(), program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+preparedtest.Script(t, "pip-wheel", "prepare-pip"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestWheel checks that the same files make the same wheel, that pip accepts it, and that its program is on the path.
func TestWheel(t *testing.T) {
	t.Parallel()
	program := []byte("#!/bin/sh\necho tutti 1.2.3\n")
	wheel := packWheel(t, program)
	first, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(packWheel(t, program)); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the second wheel differs: %v", err)
	}
	interpreter := installWheel(t, wheel)
	if out, err := run(t, nil, filepath.Join(filepath.Dir(interpreter), "tutti")); err != nil || string(out) != "tutti 1.2.3\n" {
		t.Errorf("the program printed %q, %v", out, err)
	}
	out, err := run(t, nil, interpreter, "-c", "from importlib.metadata import metadata; m = metadata('tutti-server'); print(m['Version'], m['Provides-Extra'])")
	if err != nil || string(out) != "1.2.3 client\n" {
		t.Errorf("the metadata is %q, %v", out, err)
	}
}

// TestServer runs the package's Server with this program and Triton's client: in a block, left to the interpreter's end, and where
// the interpreter is killed.
func TestServer(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(preparedtest.Program(t, "program", "tutti"))
	if err != nil {
		t.Fatal(err)
	}
	checkServer(t, installWheel(t, packWheel(t, program)))
}

// checkServer runs testdata/server.py with a Python that the package is installed for.
func checkServer(t *testing.T, interpreter string) {
	t.Helper()
	clients := preparedtest.Script(t, "conformance-clients", "prepare-conformance", "clients")
	for what, want := range map[string]string{
		"block":    `^(\S+) \[\[2, 0, 1\]\]\nTrue True\ntriton\n0\n$`,
		"disabled": `^(\S+) None True\n$`,
		"left":     `^(\S+)\n$`,
		"raised":   `^(\S+)\n(?s:.*)InferenceServerException: .*'nothing'`,
		"killed":   `^(\S+)\n$`,
		"refused": `^RuntimeError the server ended with status 1: .*open /nowhere: .*\nRuntimeError the server ended with status 1: .*no-such-option.*\n` +
			`TimeoutError the server is not ready after 0 seconds: .*\n$`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), interpreter, "-B", "-u", "testdata/server.py", models, what)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+clients)
			out := serverOutput(t, cmd, what == "killed")
			found := regexp.MustCompile(want).FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("printed\n%s\nwant %s", out, want)
			}
			if len(found) < 2 || what == "killed" {
				return
			}
			if conn, err := net.Dial("tcp", found[1]); err == nil { //nolint:noctx // nobody listens there
				_ = conn.Close()
				t.Errorf("the server still listens at %s", found[1])
			}
		})
	}
}

// serverOutput runs a command to its end and returns what it printed. If the command is to be killed, it is connected to the server before, and
// waits until the server has closed the connection.
func serverOutput(t *testing.T, cmd *exec.Cmd, kill bool) string {
	t.Helper()
	if !kill {
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "InferenceServerException") {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimSpace(line)) //nolint:noctx // the server has started
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(in, "\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("ended with %v, want a kill", err)
	}
	// One that the server has not accepted yet is reset.
	if left, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(left) > 0 {
		t.Errorf("the connection ended with %q, %v", left, err)
	}
	return line
}
