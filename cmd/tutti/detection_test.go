package main

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
)

// TestDetectionImage checks that the example's image with drawn boxes equals the one in the example's README, pixel
// by pixel.
func TestDetectionImage(t *testing.T) {
	t.Parallel()
	const dir = examplesDir + "/detection"
	a := serve(t, "--model-repository="+dir, "--backend-config", "onnxruntime,library-path="+requireRuntime(t))
	file, err := os.ReadFile(dir + "/three.png")
	if err != nil {
		t.Fatal(err)
	}
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	resp, err := c.Infer(t.Context(), &client.Request{Model: "detection_picture", Inputs: []client.Tensor{client.Text("IMAGE", []int64{1, 1}, file)}})
	if err != nil {
		t.Fatal(err)
	}
	got, _, ok := tensor.NextBytes(resp.Output("image").Data)
	if !ok {
		t.Fatal("no image")
	}
	const golden = dir + "/three-boxes.png"
	want, err := os.ReadFile(golden)
	if err == nil && samePixels(t, got, want) {
		return // the compressed bytes may differ between versions of Go
	}
	goldentest.Check(t, golden, got)
}

func samePixels(t *testing.T, a, b []byte) bool {
	t.Helper()
	var pix [2][]byte
	for i, data := range [][]byte{a, b} {
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		rgba, ok := img.(*image.RGBA)
		if !ok {
			t.Fatalf("the image is %T", img)
		}
		pix[i] = append(rgba.Pix, byte(rgba.Stride), byte(rgba.Stride>>8))
	}
	return bytes.Equal(pix[0], pix[1])
}
