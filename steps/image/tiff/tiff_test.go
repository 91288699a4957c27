package tiff_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/tiff"
)

// files reads the archive of gold files, which package image compares with Pillow.
func files(tb testing.TB) map[string][]byte {
	tb.Helper()
	z, err := zip.OpenReader("../testdata/tiff.zip")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	out := map[string][]byte{}
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".tif") {
			continue
		}
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

// mostPixels is the most pixels that a test decodes.
const mostPixels = 1 << 14

// decode decodes a file with the memory that d keeps from others.
func decode(d *tiff.Decoder, j *jpeg.Decoder, file []byte) (h tiff.Header, pix []byte, err error) {
	h, err = tiff.ReadHeader(file)
	if err != nil || h.Area > mostPixels || int64(len(file)) < h.Least {
		return h, nil, err
	}
	size := 3
	if h.Gray {
		size = 1
	}
	pix = make([]byte, h.Width*h.Height*size)
	alpha := make([]byte, h.Width*h.Height)
	if err := d.Decode(&h, pix, alpha, j); err != nil {
		return h, nil, err
	}
	return h, slices.Concat(pix, alpha), nil
}

// set changes a tag of a little-endian file whose value is in the directory.
func set(tb testing.TB, file []byte, tag uint16, value uint32) []byte {
	tb.Helper()
	file = bytes.Clone(file)
	e := entry(tb, file, tag)
	binary.LittleEndian.PutUint32(e[8:], value)
	return file
}

// without renames a tag to one that is not read.
func without(tb testing.TB, file []byte, tag uint16) []byte {
	tb.Helper()
	file = bytes.Clone(file)
	binary.LittleEndian.PutUint16(entry(tb, file, tag), 65000)
	return file
}

func entry(tb testing.TB, file []byte, tag uint16) []byte {
	tb.Helper()
	le := binary.LittleEndian
	at := int(le.Uint32(file[4:]))
	for i := range int(le.Uint16(file[at:])) {
		if e := file[at+2+12*i:]; le.Uint16(e) == tag {
			return e
		}
	}
	tb.Fatalf("no tag %d", tag)
	return nil
}

// TestRefused checks that unsupported and impossible files are refused with an error that names the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	all := files(t)
	rgb, gray, strips := all["rgbx.tif"], all["white.tif"], all["rgbplanes.tif"]
	float, lzw, tiles, pages := all["float.tif"], all["palette8.tif"], all["rgbtiles.tif"], all["palettex.tif"]
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"empty":         {nil, "truncated before the image size"},
		"no directory":  {rgb[:9], "truncated before the image size"},
		"no size":       {without(t, rgb, 256), "no image size"},
		"no width":      {set(t, rgb, 256, 0), "impossible size 0 x 31"},
		"lab":           {set(t, strips, 262, 8), "unsupported TIFF colours (photometric interpretation 8), expected gray, RGB, CMYK or a palette"},
		"plain YCbCr":   {set(t, strips, 262, 6), "unsupported TIFF of YCbCr without JPEG"},
		"YCbCr of 4":    {set(t, rgb, 262, 6), "unsupported TIFF of 4 samples per pixel, expected 3 of YCbCr"},
		"gray of 4":     {set(t, rgb, 277, 9), "unsupported TIFF of 9 samples per pixel, expected 3 and at most 3 more"},
		"ink alpha":     {set(t, all["cmykx.tif"], 338, 2), "unsupported TIFF of extra samples of kind 2"},
		"signed":        {set(t, float, 339, 2), "unsupported TIFF of sample format 2, expected unsigned integers or floating point"},
		"half":          {set(t, float, 258, 16), "unsupported TIFF of floating point samples of 16 bits, expected 32"},
		"12 bits":       {set(t, gray, 258, 12), "unsupported TIFF of 12 bits per sample, expected 1, 2, 4, 8 or 16"},
		"wide index":    {set(t, set(t, pages, 277, 1), 258, 16), "unsupported TIFF of 16 bits per index of a palette"},
		"planar":        {set(t, rgb, 284, 3), "unknown TIFF planar configuration 3"},
		"zstd":          {set(t, gray, 259, 50000), "unsupported TIFF compression: Zstandard"},
		"old JPEG":      {set(t, gray, 259, 6), "unsupported TIFF compression: JPEG of the old kind"},
		"unknown":       {set(t, gray, 259, 99), "unsupported TIFF compression: kind 99"},
		"fax of 8 bits": {set(t, gray, 259, 4), "unsupported TIFF with fax compression of 1 samples of 8 bits, expected 1 of 1"},
		"JPEG planes":   {set(t, strips, 259, 7), "unsupported TIFF with JPEG of separate planes"},
		"predictor":     {set(t, lzw, 317, 3), "unsupported TIFF predictor 3 of samples of 8 bits"},
		"no palette":    {without(t, lzw, 320), "no TIFF palette"},
		"rows":          {set(t, gray, 278, 0), "impossible TIFF strips of 0 rows"},
		"tiles":         {set(t, tiles, 322, 0), "impossible TIFF tiles of 0 x 16 pixels"},
		"no places":     {without(t, gray, 273), "expected the places of 1 TIFF strips or tiles, found 0"},
		"few places":    {set(t, gray, 278, 1), "expected the places of 31 TIFF strips or tiles, found 1"},
		"far place":     {set(t, gray, 273, 1<<31), "truncated: a strip or tile lies behind the end of the file"},
		"short":         {set(t, gray, 279, 1000), "truncated: a strip or tile ends early"},
		"short LZW":     {set(t, lzw, 279, 500), "truncated: a strip or tile ends early"},
		"not Deflate":   {set(t, gray, 259, 8), "zlib: invalid header"},
		"not JPEG":      {set(t, gray, 259, 7), "no start marker"},
		"other JPEG":    {set(t, all["jpeggray.tif"], 256, 46), "expected a JPEG of 46 x 31 pixels of 1 samples as a strip or tile, found 45 x 31 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := decode(new(tiff.Decoder), new(jpeg.Decoder), tc.file); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestLoop decodes a file whose directory names itself as the next one.
func TestLoop(t *testing.T) {
	t.Parallel()
	file := bytes.Clone(files(t)["rgbx.tif"])
	le := binary.LittleEndian
	at := le.Uint32(file[4:])
	le.PutUint32(file[at+2+12*uint32(le.Uint16(file[at:])):], at)
	if _, pix, err := decode(new(tiff.Decoder), new(jpeg.Decoder), file); err != nil || pix == nil {
		t.Errorf("got %d bytes, %v", len(pix), err)
	}
}

// TestClaims checks Area and Least of headers.
func TestClaims(t *testing.T) {
	t.Parallel()
	all := files(t)
	for _, tc := range []struct {
		name        string
		file        []byte
		area, least int64
	}{
		{"strips", all["rgbx.tif"], 45 * 31, 4 * 45 * 31},
		{"tiles", all["rgbtiles.tif"], 64 * 32, 3 * 45 * 31},
		{"large tiles", set(t, set(t, all["rgbtiles.tif"], 322, 1<<15), 323, 1<<15), 1 << 30, 3 * 45 * 31},
		{"deflate", set(t, set(t, all["white2.tif"], 256, 40000), 257, 40000), 40000 * 40000, 40000 * 10000 / 1032},
	} {
		h, err := tiff.ReadHeader(tc.file)
		if err != nil || h.Area != tc.area || h.Least != tc.least {
			t.Errorf("%s: got area %d, least %d, %v, want %d and %d", tc.name, h.Area, h.Least, err, tc.area, tc.least)
		}
	}
}

// TestDeepGray checks that gray samples of 16 bits give their high byte.
func TestDeepGray(t *testing.T) {
	t.Parallel()
	// the planes of an image of three samples, the first of which is read as gray
	for name, high := range map[string]int{"rgb16.tif": 1, "rgb16big.tif": 0} {
		file := bytes.Clone(files(t)[name])
		order := binary.ByteOrder(binary.LittleEndian)
		if high == 0 {
			order = binary.BigEndian
		}
		at := int(order.Uint32(file[4:]))
		for i := range int(order.Uint16(file[at:])) {
			switch e := file[at+2+12*i:]; order.Uint16(e) {
			case 256: // as wide as all samples of a row
				order.PutUint32(e[8:], 3*45)
			case 258:
				order.PutUint32(e[4:], 1)
				order.PutUint16(e[8:], 16)
			case 262, 277:
				order.PutUint16(e[8:], 1)
			}
		}
		h, pix, err := decode(new(tiff.Decoder), new(jpeg.Decoder), file)
		if err != nil || !h.Gray {
			t.Fatalf("%s: gray %t, %v", name, h.Gray, err)
		}
		var want []byte
		for i := high; len(want) < 3*45*7; i += 2 {
			want = append(want, file[8+i])
		}
		if !slices.Equal(pix[:3*45*7], want) {
			t.Errorf("%s: the first strip has not the high bytes", name)
		}
	}
}

// FuzzDecode decodes damaged files: no panic, and the same pixels in used memory as in new memory.
func FuzzDecode(f *testing.F) {
	for _, file := range files(f) {
		f.Add(file)
	}
	var d tiff.Decoder
	var j jpeg.Decoder
	f.Fuzz(func(t *testing.T, file []byte) {
		_, used, err := decode(&d, &j, file)
		_, fresh, freshErr := decode(new(tiff.Decoder), new(jpeg.Decoder), file)
		if (err == nil) != (freshErr == nil) || !bytes.Equal(used, fresh) {
			t.Fatalf("used memory gives %v, fresh %v", err, freshErr)
		}
	})
}
