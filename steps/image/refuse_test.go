package image_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps/image"
)

// withSize returns the JPEG or PNG with another size in its header.
func withSize(file []byte, w, h uint32) []byte {
	file = bytes.Clone(file)
	if file[0] == 0x89 {
		binary.BigEndian.PutUint32(file[16:], w)
		binary.BigEndian.PutUint32(file[20:], h)
		return file
	}
	sof := bytes.Index(file, []byte{0xff, 0xc0, 0, 17})
	binary.BigEndian.PutUint16(file[sof+5:], uint16(h))
	binary.BigEndian.PutUint16(file[sof+7:], uint16(w))
	return file
}

// TestBadFile checks that a bad file fails its own request, with words that help.
func TestBadFile(t *testing.T) {
	t.Parallel()
	png, jpg := readFile(t, "testdata/in/rgb.png"), readFile(t, "testdata/in/j420.jpg")
	end := len(jpg) - 2 // The end marker.
	many := bytes.Repeat([]byte{0xff, 0xda, 0, 2}, 101)
	scans := slices.Concat(jpg[:end], many, jpg[end:])
	damaged := bytes.Clone(png)
	damaged[len(damaged)/2] ^= 0x55
	arithmetic := bytes.Clone(jpg)
	arithmetic[bytes.Index(jpg, []byte{0xff, 0xc0, 0, 17})+1] = 0xc9
	const unknown, broken = "expected JPEG, PNG, GIF, WebP, BMP or TIFF, found ", " that cannot be decoded: "
	for _, tc := range []struct {
		name   string
		file   []byte
		params map[string]string
		want   string
	}{
		{"empty", nil, nil, unknown + "no bytes"},
		{"text", []byte("hello, world"), nil, unknown + "12 bytes starting with 68 65 6c 6c 6f 2c 20 77"},
		{"gif", []byte("GIF89a\x02\x00\x02\x00..."), nil, unknown + "a GIF" + broken + "no frame"},
		{"webp", []byte("RIFF....WEBPVP8 "), nil, unknown + "a WebP" + broken + "truncated before the image size"},
		{"bmp", []byte("BM........"), nil, unknown + "a BMP" + broken + "truncated before the image size"},
		{"tiff", []byte("II*\x00...."), nil, unknown + "a TIFF" + broken + "truncated before the image size"},
		{"base64", []byte("/9j/4AAQSkZJRg"), nil, unknown + "base64 text of a JPEG"},
		{"jpeg of two bytes", jpg[:2], nil, unknown + "a JPEG" + broken + "truncated before the image size"},
		{"png of eight bytes", png[:8], nil, unknown + "a PNG" + broken + "truncated before the image size"},
		{"truncated jpeg", jpg[:len(jpg)*3/4], nil, unknown + "a JPEG" + broken},
		{"truncated png", png[:len(png)*3/4], nil, unknown + "a PNG" + broken + "png: invalid format"},
		{"damaged png", damaged, nil, unknown + "a PNG" + broken},
		{"no size", withSize(jpg, 0, 5), nil, "impossible size 0 x 5"},
		{"negative size", withSize(png, 1<<31, 5), nil, "impossible size 2147483648 x 5"},
		{"strip", withSize(png, 70000, 5), nil, "expected sides of at most 65535 pixels, found 70000 x 5"},
		{"bomb", withSize(jpg, 8000, 8000), nil, "truncated, 2743 bytes cannot hold 8000 x 8000 pixels"},
		{"png bomb", withSize(png, 8000, 8000), nil, "cannot hold 8000 x 8000 pixels"},
		{"too large", withSize(png, 9000, 9000), nil, "expected at most 67108864 pixels (max_pixels), found 9000 x 9000 = 81000000"},
		{"own limit", png, map[string]string{"max_pixels": "100"}, "expected at most 100 pixels (max_pixels), found 61 x 47 = 2867"},
		{"own size", png, map[string]string{"max_bytes": "100"}, "expected at most 100 bytes (max_bytes), found "},
		{"scans", scans, nil, "expected at most 100 scans, found more"},
		{"arithmetic", arithmetic, nil, "unsupported JPEG process SOF9"},
		{"scan first", []byte{0xff, 0xd8, 0xff, 0xda, 0, 8, 0, 0}, nil, "no frame header before the image data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBatch(t, tensortest.NewChecked(t, nil), jpg, tc.file, png)
			defer release(b)
			if err := mustStep(t, 4, 4, tc.params).Run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			err := b.Requests[1].Err
			if err == nil || !strings.HasPrefix(err.Error(), "input 'IMAGE': ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if got := status.CodeOf(err); got != status.InvalidArg {
				t.Errorf("code %v", got)
			}
			if limited := tc.params != nil; !limited && (b.Requests[0].Err != nil || b.Requests[2].Err != nil) {
				t.Errorf("the neighbours failed: %v, %v", b.Requests[0].Err, b.Requests[2].Err)
			}
		})
	}
}

// TestAppended checks that what follows a JPEG's end is left alone.
func TestAppended(t *testing.T) {
	t.Parallel()
	jpg := readFile(t, "testdata/in/j420.jpg")
	want, err := pixels(t, jpg, 8, 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pixels(t, slices.Concat(jpg, bytes.Repeat([]byte{0xff, 0xda, 0, 2}, 101)), 8, 8, nil)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%v, %v, want %v", err, got, want)
	}
}

// TestRowNamed checks that an error in a request of several rows says which.
func TestRowNamed(t *testing.T) {
	t.Parallel()
	png := readFile(t, "testdata/in/rgb.png")
	b := newBatch(t, tensortest.NewChecked(t, nil), png, png, nil)
	defer release(b)
	b.Requests = b.Requests[:2]
	b.Requests[1].Rows = 2
	if err := mustStep(t, 4, 4, nil).Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := b.Requests[1].Err; err == nil || !strings.HasPrefix(err.Error(), "input 'IMAGE' row 1: expected JPEG, PNG, GIF, WebP, BMP or TIFF") {
		t.Errorf("got %v", err)
	}
}

func TestBatchErrors(t *testing.T) {
	t.Parallel()
	step := mustStep(t, 4, 4, nil)
	png := readFile(t, "testdata/in/rgb.png")
	b := newBatch(t, tensortest.NewChecked(t, nil), png)
	defer release(b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := step.Run(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	b.Rows = 2
	if err := step.Run(t.Context(), b); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("one file for two rows: got %v", err)
	}
}

func TestParametersRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		w, h int
		key  string
		val  string
		want string
	}{
		{"width", 0, 5, "", "", "parameter 'width' of model 'pre' is '0'"},
		{"height", 5, -1, "", "", "parameter 'height' of model 'pre' is '-1'"},
		{"together", 5000, 5000, "", "", "ask for 5000 x 5000 pixels"},
		{"overflow", 1 << 40, 1 << 40, "", "", "expected at most 16777216 together"},
		{"unknown", 5, 5, "colour", "rgb", "unknown parameter 'colour'"},
		{"color", 5, 5, "color", "lab", "expected one of rgb, bgr, gray, ycbcr"},
		{"resize", 5, 5, "resize", "hermite", "expected one of nearest"},
		{"scale", 5, 5, "scale", "1/0", "parameter 'scale' of model 'pre' is '1/0', expected a number or a fraction"},
		{"nan", 5, 5, "mean", "NaN", "expected numbers separated by commas"},
		{"count", 5, 5, "mean", "1,2", "expected 1 or 3 numbers separated by commas"},
		{"std", 5, 5, "std", "1,0,1", "expected numbers other than 0"},
		{"max_pixels", 5, 5, "max_pixels", "many", "parameter 'max_pixels' of model 'pre' is 'many'"},
		{"max_bytes", 5, 5, "max_bytes", "0", "parameter 'max_bytes' of model 'pre' is '0'"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			params := map[string]string{}
			if tc.key != "" {
				params[tc.key] = tc.val
			}
			if _, _, err := newStep(tc.w, tc.h, params); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	_, _, err := newStep(5, 5, map[string]string{"dtype": "uint8", "mean": "3"})
	if err == nil || !strings.Contains(err.Error(), "expected none with dtype uint8") {
		t.Errorf("uint8 with mean: got %v", err)
	}
	f := image.NewFactory()
	if _, err := f.Resolve(map[string]string{"width": "4"}); err == nil || !strings.Contains(err.Error(), "needs parameter 'height'") {
		t.Errorf("no height: got %v", err)
	}
}
