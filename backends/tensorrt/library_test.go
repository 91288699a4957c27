//go:build cgo

package tensorrt_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/tensorrt"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/logtest"
)

// openError opens the backend with these settings and returns its error.
func openError(t *testing.T, config map[string]string) error {
	t.Helper()
	b, err := tensorrt.NewFactory().New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: config})
	if b != nil && err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return err
}

// TestNoLibrary checks the errors of a machine without TensorRT, and of wrong settings.
func TestNoLibrary(t *testing.T) { // sets the environment
	dir := t.TempDir()
	for name, value := range map[string]string{"TUTTI_TENSORRT_LIB": "", "XDG_CACHE_HOME": dir, "LD_LIBRARY_PATH": dir, "HOME": dir} {
		t.Setenv(name, value)
	}
	t.Chdir(dir)
	for name, tc := range map[string]struct {
		config map[string]string
		code   status.Code
		want   string
	}{
		"not installed": {nil, status.Unavailable, "TensorRT is not installed: run 'tutti runtime fetch tensorrt'"},
		"missing path":  {map[string]string{"library-path": "/none/libnvinfer.so"}, status.Unavailable, "no TensorRT library at '/none/libnvinfer.so'"},
		"policy":        {map[string]string{"execution-policy": "FAST"}, status.InvalidArg, "unexpected value 'FAST' of tensorrt setting 'execution-policy': expected DEVICE_BLOCKING or BLOCKING"},
		"version":       {map[string]string{"version-compatible": "maybe"}, status.InvalidArg, "unexpected value 'maybe' of parameter 'version-compatible'"},
	} {
		if name == "not installed" {
			if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/libnvinfer.so.10"); err == nil {
				continue
			}
		}
		if err := openError(t, tc.config); status.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if libm, err := filepath.Glob("/lib/*/libm.so.6"); err == nil && len(libm) > 0 {
		if err := openError(t, map[string]string{"library-path": libm[0]}); err == nil || !strings.Contains(err.Error(), "is no library of TensorRT 10 or 11") {
			t.Errorf("another library: %v", err)
		}
	}
}

// TestSlots compares the slots of trt.h with TensorRT's own header NvInferImpl.h, of which TUTTI_TEST_TENSORRT_HEADERS names the
// folders, separated by colons. Virtual functions are in the table in the order of their declaration, behind two destructors.
func TestSlots(t *testing.T) {
	t.Parallel()
	folders := filepath.SplitList(os.Getenv("TUTTI_TEST_TENSORRT_HEADERS"))
	if len(folders) == 0 {
		t.Skip("TUTTI_TEST_TENSORRT_HEADERS names no folder with TensorRT's headers")
	}
	for _, dir := range folders {
		version := string(read(t, filepath.Join(dir, "NvInferVersion.h")))
		major := 10
		if regexp.MustCompile(`#define \w*MAJOR\w* +11\b`).MatchString(version) {
			major = 11
		}
		text := string(read(t, filepath.Join(dir, "NvInferImpl.h")))
		seen := 0
		for f, slot := range tensorrt.Slots(major) {
			got := declared(text, f[0], f[1])
			// Functions at the end of a class came with minor versions, which trt.c asks for.
			if slot != got && (got != -1 || slot <= 0) {
				t.Errorf("%s: %s::%s is in slot %d, trt.h says %d", dir, f[0], f[1], got, slot)
			}
			if got > 0 {
				seen++
			}
		}
		if seen < 20 {
			t.Errorf("%s: %d functions were found", dir, seen)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// declared returns the slot of a virtual function of a class in a header, or -1.
func declared(text, class, function string) int {
	body := regexp.MustCompile(`(?s)class ` + class + ` :.*?\n\{(.*?)\n\};`).FindStringSubmatch(text)
	if body == nil {
		return -1
	}
	plain := regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`).ReplaceAllString(body[1], "")
	for i, m := range regexp.MustCompile(`(?s)virtual\b[^(;]*?(\w+)\s*\(`).FindAllStringSubmatch(plain, -1) {
		if m[1] == function {
			return i + 2
		}
	}
	return -1
}

// TestLibrary opens TensorRT's own library, which TUTTI_TEST_TENSORRT names, on the checking driver. The driver has not what the
// library needs, so that no runtime starts: the library's text must arrive through the logger.
func TestLibrary(t *testing.T) {
	t.Parallel()
	path := os.Getenv("TUTTI_TEST_TENSORRT")
	if path == "" {
		t.Skip("TUTTI_TEST_TENSORRT names no library of TensorRT's")
	}
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	places := tensor.NewPlaces(tensor.NewPool())
	devices, err := driver.Devices(cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := places.Add(devices[0]); err != nil {
		t.Fatal(err)
	}
	b, err := tensorrt.NewFactory().New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"library-path": path}, Places: places})
	if err != nil {
		t.Fatal(err)
	}
	d, ok := b.(backends.Describer)
	if !ok || !regexp.MustCompile(`^TensorRT .*1[01]\.\d+\.\d+, /`).MatchString(d.Describe()) {
		t.Errorf("%v describes no version", b)
	}
	t.Log(d.Describe())
	k := &kit{Backend: b, major: 10, places: places, pool: tensor.NewPool(), log: &logtest.Buffer{}}
	_, err = b.Load(t.Context(), k.settings(t, scale, ""))
	t.Log(err)
	if err == nil || !strings.Contains(err.Error(), "TensorRT 1") || !strings.Contains(err.Error(), "CUDA") && !strings.Contains(err.Error(), "plan") {
		t.Errorf("Load: %v", err)
	}
	if err := driver.Close(); err != nil {
		t.Error(err)
	}
}
