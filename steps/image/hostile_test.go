package image_test

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestTruncated cuts every file of every format in the middle of its pixels.
func TestTruncated(t *testing.T) {
	t.Parallel()
	all := formats(t)
	for _, name := range sources(all) {
		if strings.HasPrefix(name, "animated") || strings.HasPrefix(name, "odd") {
			continue // half of the file holds the whole image
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := all[name]
			if _, err := pixels(t, file[:len(file)/2], 4, 4, nil); err == nil || !strings.HasPrefix(err.Error(), "input 'IMAGE': ") {
				t.Errorf("half of the file: got %v", err)
			}
		})
	}
}

// TestBombs takes files that claim far more pixels than they hold.
func TestBombs(t *testing.T) {
	t.Parallel()
	all := formats(t)
	le := binary.LittleEndian
	for name, claim := range map[string]func(file []byte){
		"plain.gif":     func(f []byte) { le.PutUint16(f[6:], 60000); le.PutUint16(f[8:], 60000) },
		"rgb.bmp":       func(f []byte) { le.PutUint32(f[18:], 60000); le.PutUint32(f[22:], 60000) },
		"rle8.bmp":      func(f []byte) { le.PutUint32(f[18:], 60000); le.PutUint32(f[22:], 60000) },
		"lossy50.webp":  func(f []byte) { le.PutUint16(f[26:], 16383); le.PutUint16(f[28:], 16383) },
		"lossless.webp": func(f []byte) { le.PutUint32(f[21:], 0x0fffffff) },
		"rgb_None.tif":  func(f []byte) { setTag(t, f, 256, 60000); setTag(t, f, 257, 60000) },
		"rgbtiles.tif":  func(f []byte) { setTag(t, f, 322, 60000); setTag(t, f, 323, 60000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := append([]byte(nil), all[name]...)
			claim(file)
			if _, err := pixels(t, file, 4, 4, nil); err == nil || !strings.Contains(err.Error(), "expected at most 67108864 pixels (max_pixels), found ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// setTag sets a number of the first directory of a TIFF file that Pillow wrote.
func setTag(tb testing.TB, file []byte, tag, value uint16) {
	tb.Helper()
	le := binary.LittleEndian
	at := int(le.Uint32(file[4:]))
	for i := range int(le.Uint16(file[at:])) {
		if e := file[at+2+12*i:]; le.Uint16(e) == tag {
			le.PutUint32(e[8:], uint32(value))
			return
		}
	}
	tb.Fatalf("no tag %d", tag)
}

// TestEndless takes a GIF whose comments never end and one whose codes never do.
func TestEndless(t *testing.T) {
	t.Parallel()
	gif := formats(t)["plain.gif"]
	comments := append([]byte(nil), gif[:13+3*(2<<(gif[10]&7))]...)
	comments = append(comments, strings.Repeat("!\xfe\x01x\x00", 1<<16)...)
	if _, err := pixels(t, comments, 4, 4, nil); err == nil || !strings.Contains(err.Error(), "no frame") {
		t.Errorf("comments: got %v", err)
	}
	codes := append([]byte(nil), gif[:len(gif)-2]...)
	codes = append(codes, strings.Repeat("\xff"+strings.Repeat("\x11", 255), 1<<12)...)
	got, err := pixels(t, codes, 4, 4, nil)
	want, wantErr := pixels(t, gif, 4, 4, nil)
	if err != nil || wantErr != nil || string(got) != string(want) {
		t.Errorf("codes: got %v, %v", err, wantErr)
	}
}
