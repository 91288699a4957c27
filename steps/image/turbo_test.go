package image_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/image/turbojpeg"
)

// TestTurbo holds libturbojpeg, where the system has it, to the pixels that the
// program's own decoder is held to.
func TestTurbo(t *testing.T) {
	t.Parallel()
	if _, err := turbojpeg.Open(); err != nil {
		t.Skip(err)
	}
	all, params := formats(t), map[string]string{"jpeg_decoder": "turbojpeg"}
	for _, name := range sources(all) {
		if strings.HasSuffix(name, ".jpg") {
			same(t, all[name], all[name+".rgb"], params)
		}
	}
	for _, name := range []string{"j420", "j422", "j444", "flat411", "flat440", "progressive", "grayjpg", "cmyk"} {
		file := readFile(t, "testdata/in", name+".jpg")
		for _, scale := range []string{"full", "auto"} {
			var got [2][]byte
			for i, decoder := range []string{"go", "turbojpeg"} {
				var err error
				if got[i], err = pixels(t, file, 9, 7, map[string]string{"jpeg_decoder": decoder, "jpeg_scale": scale}); err != nil {
					t.Fatal(name, decoder, err)
				}
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("%s, jpeg_scale %s: the decoders differ", name, scale)
			}
		}
	}
	jpg := readFile(t, "testdata/in/j420.jpg")
	if _, err := pixels(t, jpg[:len(jpg)*3/4], 9, 7, params); err == nil || !strings.Contains(err.Error(), "libturbojpeg: ") {
		t.Errorf("a truncated file: got %v", err)
	}
}
