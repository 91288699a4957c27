package image_test

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

// FuzzJPEG takes damaged files through the program's own decoder.
func FuzzJPEG(f *testing.F) { fuzzFormat(f, ".jpg", map[string]string{"jpeg_decoder": "go"}) }

// FuzzReducedJPEG is FuzzJPEG at a fraction of the size.
func FuzzReducedJPEG(f *testing.F) {
	fuzzFormat(f, ".jpg", map[string]string{"jpeg_decoder": "go", "jpeg_scale": "auto"})
}

// FuzzPNG is FuzzJPEG for PNG.
func FuzzPNG(f *testing.F) { fuzzFormat(f, ".png", nil) }

// FuzzGIF is FuzzJPEG for GIF.
func FuzzGIF(f *testing.F) { fuzzFormat(f, ".gif", nil) }

// FuzzWebP is FuzzJPEG for WebP.
func FuzzWebP(f *testing.F) { fuzzFormat(f, ".webp", nil) }

// FuzzBMP is FuzzJPEG for BMP.
func FuzzBMP(f *testing.F) { fuzzFormat(f, ".bmp", nil) }

// FuzzTIFF is FuzzJPEG for TIFF.
func FuzzTIFF(f *testing.F) { fuzzFormat(f, ".tif", nil) }

// fuzzFormat feeds a step arbitrary files, first those of a format. It must never
// panic; what it accepts is within the limits, and gives the same pixels in scratch
// memory that holds another image as in fresh memory.
func fuzzFormat(f *testing.F, suffix string, params map[string]string) {
	f.Helper()
	const limit = 1 << 13
	for name, file := range formats(f) {
		if strings.HasSuffix(name, suffix) {
			f.Add(file)
		}
	}
	paths, err := filepath.Glob("testdata/in/*" + suffix)
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		f.Add(readFile(f, path))
	}
	given := map[string]string{
		"width": "5", "height": "4", "max_pixels": strconv.Itoa(limit), "geometry": "true", "alpha": "composite",
	}
	maps.Copy(given, params)
	factory := image.NewFactory()
	used := makeStep(f, &factory, given)
	f.Fuzz(func(t *testing.T, file []byte) {
		fresh := makeStep(t, &factory, given)
		a, b := newBatch(t, tensor.NewPool(), file), newBatch(t, tensor.NewPool(), file)
		a.Out, b.Out = make([]tensor.Tensor, 2), make([]tensor.Tensor, 2)
		defer releaseAll(a)
		defer releaseAll(b)
		if err := errors.Join(used.Run(t.Context(), a), fresh.Run(t.Context(), b)); err != nil {
			t.Fatal(err)
		}
		if (a.Requests[0].Err == nil) != (b.Requests[0].Err == nil) || !bytes.Equal(a.Out[0].Bytes(), b.Out[0].Bytes()) {
			t.Fatalf("used memory gives %v, fresh %v", a.Requests[0].Err, b.Requests[0].Err)
		}
		if g := tensor.Slice[float32](&a.Out[1]); a.Requests[0].Err == nil && !(g[4] >= 1 && g[5] >= 1 && g[4]*g[5] <= limit) {
			t.Errorf("accepted a file of %v x %v pixels", g[4], g[5])
		}
	})
}

// FuzzResize takes images of any size through every filter and fit: no panic, and
// samples that are all alike stay so, because weights add up to one; those of OpenCV
// only nearly.
func FuzzResize(f *testing.F) {
	filters := []string{
		"nearest", "area", "bilinear", "bicubic", "lanczos", "hamming", "cv_nearest", "cv_linear", "cv_cubic", "cv_area", "cv_lanczos4",
	}
	fits := []string{"exact", "short_side", "letterbox", "none"}
	f.Add(uint16(1), uint16(1), uint16(7), uint16(9), uint16(0), byte(0), byte(0), float32(0), float32(0), float32(9), float32(9))
	f.Add(uint16(2000), uint16(3), uint16(20), uint16(70), uint16(33), byte(77), byte(9), float32(-1), float32(1), float32(5), float32(1e30))
	crop := image.NewCropFactory()
	f.Fuzz(func(t *testing.T, w, h, width, height, short uint16, mode, filter byte, x0, y0, x1, y1 float32) {
		inW, inH := int64(w%3000)+1, int64(h%3000)+1
		params := map[string]string{
			"width": strconv.Itoa(int(width%300) + 1), "height": strconv.Itoa(int(height%300) + 1), "input": "pixels", "fill": "200",
			"dtype": "uint8", "layout": "nhwc", "resize": filters[int(filter)%len(filters)], "fit": fits[int(mode)%4], "antialias": strconv.FormatBool(mode < 128),
		}
		most := byte(200)
		if strings.HasPrefix(params["resize"], "cv_") {
			most++
		} else if mode < 64 {
			params["reducing_gap"] = strconv.FormatFloat(1+float64(mode)/20, 'g', -1, 64)
		}
		if params["fit"] == "short_side" {
			params["short_side"] = strconv.Itoa(int(short % 2000))
		}
		resolved, err := crop.Resolve(params)
		if err != nil {
			t.Fatal(err)
		}
		step, err := crop.New(&steps.Settings{MaxBatch: 1, Params: resolved})
		if err != nil {
			t.Fatal(err)
		}
		if inW*inH > 1<<16 {
			inH = 1<<16/inW + 1
		}
		b := pixelBatch(t, tensor.NewPool(), []int64{inH, inW, 3}, bytes.Repeat([]byte{200}, int(inW*inH*3)),
			[][]float32{{x0, y0, x1, y1}, {0, 0, float32(inW), float32(inH)}})
		defer releaseAll(b)
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		for i, v := range b.Out[0].Bytes() {
			if v < 200 || v > most {
				t.Fatalf("sample %d is %d", i, v)
			}
		}
	})
}
