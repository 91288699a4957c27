package jpeg_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/image/jpeg"
)

// readGold reads the archive that testdata/make_gold.py makes.
func readGold(tb testing.TB) map[string][]byte {
	tb.Helper()
	z, err := zip.OpenReader("testdata/gold.zip")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	out := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			tb.Fatal(err)
		}
		if out[f.Name], err = io.ReadAll(r); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

// decoded formats a decoded image as the archive does.
func decoded(d *jpeg.Decoder) []byte {
	w, h := d.Size()
	ch := 3
	if d.Gray() {
		ch = 1
	}
	out := fmt.Appendf(nil, "%d %d %d\n", w, h, ch)
	row := make([]byte, w*ch)
	for y := range h {
		d.Row(row, y)
		out = append(out, row...)
	}
	return out
}

// TestGold compares every sample with libjpeg-turbo, at every scale.
func TestGold(t *testing.T) { //nolint:tparallel // the subtests share a decoder
	t.Parallel()
	gold := readGold(t)
	var d jpeg.Decoder
	for name, file := range gold {
		stem, ok := strings.CutSuffix(name, ".jpg")
		if !ok {
			continue
		}
		for _, scale := range []int{1, 2, 4, 8} {
			t.Run(stem+"/"+strconv.Itoa(scale), func(t *testing.T) { //nolint:paralleltest // one decoder for all: the state of one file must not change the next
				if err := d.Decode(file, scale); err != nil {
					t.Fatal(err)
				}
				want, got := gold[stem+"."+strconv.Itoa(scale)], decoded(&d)
				if !bytes.Equal(want, got) {
					t.Errorf("%d bytes, want %d; first difference at %d", len(got), len(want), firstDiff(got, want))
				}
			})
		}
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
