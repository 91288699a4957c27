package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestGPUKitWithoutGPU checks that the kit says why it measures nothing on a machine without a GPU, and fails.
func TestGPUKitWithoutGPU(t *testing.T) {
	t.Parallel()
	python := preparedtest.Path(t, "python3", func() (string, error) { return exec.LookPath("python3") })
	kit := t.TempDir()
	if err := os.CopyFS(kit, os.DirFS("gpu-kit")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(kit, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(preparedtest.Program(t, "program", "tutti"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(kit, "bin", "tutti")); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(kit, "table.md")
	out, err := exec.CommandContext(t.Context(), python, filepath.Join(kit, "kit.py"), "--driver", "libtutti_no_gpu.so", "--out", table).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v, want status 1:\n%s", err, out)
	}
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| machine | tutti doctor | FAILED | -- gpu CUDA driver: libtutti_no_gpu.so: cannot open shared object file",
		"| device | all | skipped | not measured: the server uses no GPU of this machine, see the row of tutti doctor |",
		"| figures | all | skipped | not measured",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(out), "Traceback") || strings.Count(string(text), "FAILED") > 2 { // torch may be missing as well
		t.Errorf("more than the reason:\n%s", out)
	}
}
