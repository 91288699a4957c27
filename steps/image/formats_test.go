package image_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// formats reads the archives that testdata/make_formats.py and make_tiff.py make.
func formats(tb testing.TB) map[string][]byte {
	tb.Helper()
	out := map[string][]byte{}
	unzip(tb, out, "testdata/formats.zip")
	unzip(tb, out, "testdata/tiff.zip")
	return out
}

func unzip(tb testing.TB, out map[string][]byte, path string) {
	tb.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			tb.Fatal(err)
		}
		if out[f.Name], err = io.ReadAll(r); err != nil {
			tb.Fatal(err)
		}
	}
}

// sources lists the files among the archive's entries.
func sources(all map[string][]byte) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return strings.HasSuffix(name, ".rgb") || strings.HasSuffix(name, ".over")
	})
}

// TestFormats compares every sample of every format with Pillow.
func TestFormats(t *testing.T) {
	t.Parallel()
	all := formats(t)
	over := map[string]string{"alpha": "composite", "background": "10, 200, 30"}
	for _, name := range sources(all) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same(t, all[name], all[name+".rgb"], nil)
			if want := all[name+".over"]; want != nil {
				same(t, all[name], want, over)
			} else {
				same(t, all[name], all[name+".rgb"], over)
			}
		})
	}
}

// same decodes a file at its size and compares.
func same(t *testing.T, file, want []byte, params map[string]string) {
	t.Helper()
	var w, h int
	if _, err := fmt.Sscanf(string(want), "%d %d\n", &w, &h); err != nil {
		t.Fatal(err)
	}
	want = want[bytes.IndexByte(want, '\n')+1:]
	got, err := pixels(t, file, w, h, params)
	if err != nil {
		t.Fatal(params, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v: pixel %d, %d of %d x %d is %v, want %v", params, i/3%w, i/3/w, w, h, got[i/3*3:i/3*3+3], want[i/3*3:i/3*3+3])
		}
	}
}
