//go:build cgo

package image_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestResizeAtDevice compares random resizes of pixels at a device with those on the host, bit for bit: all filters with kernels, fits,
// layouts, types and colour spaces, images of one pixel, one row and one column, and huge ratios.
func TestResizeAtDevice(t *testing.T) {
	g, gpu := rand.New(rand.NewPCG(11, 12)), steptest.OpenGPU(t)
	pick := func(list ...string) string { return list[g.IntN(len(list))] }
	side := func() int { return []int{1, 1, 2, 3, 7, 16, 33, 100, 257}[g.IntN(9)] }
	n := 150
	if testing.Short() {
		n = 60
	}
	for i := range n {
		p := map[string]string{
			"width": strconv.Itoa(side()), "height": strconv.Itoa(side()), "fit": pick("exact", "short_side", "letterbox", "none"),
			"resize": pick("nearest", "area", "bilinear", "bicubic"), "antialias": pick("true", "true", "false"), "anchor": pick("center", "top_left"),
			"color": pick("rgb", "bgr", "gray", "ycbcr"), "layout": pick("nchw", "nhwc"), "dtype": pick("fp32", "fp16", "uint8"), "fill": pick("0", "114"),
		}
		if p["dtype"] != "uint8" {
			p["mean"], p["std"], p["rounding"] = "0.5", "0.25", pick("once", "each")
		}
		rows, w, h, ch := 1+g.IntN(3), side(), side(), []int{1, 3, 4}[g.IntN(3)]
		if i%10 == 0 {
			w, h = 1+g.IntN(2)*1999, 1+g.IntN(2)*1499 // huge ratios
		}
		if i%4 == 0 {
			p["crop"] = fmt.Sprintf("%d,%d,%d,%d", w/3, h/3, w/3+1+w/2, h/3+1+h/2)
		}
		if g.IntN(20) == 0 {
			p["crop"] = fmt.Sprintf("%d,0,%d,1", w, w+1) // outside
		}
		v := steptest.Value{DType: tensor.Uint8, Dims: []int64{int64(rows), int64(h), int64(w), int64(ch)}, Data: make([]byte, rows*w*h*ch)}
		for j := range v.Data {
			v.Data[j] = byte(g.Uint32())
		}
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			gpu.Step(t, image.NewResizeFactory(), &steptest.Case{Params: p, MaxBatch: 8}).Compare(0, rows, v)
			if t.Failed() {
				t.Log(p)
			}
		})
	}
}

// TestDecodeResizeAtDevice compares whole files: decoded on the host, uploaded once, resized and normalised at the device.
func TestDecodeResizeAtDevice(t *testing.T) {
	gpu := steptest.OpenGPU(t)
	paths, _ := filepath.Glob("testdata/in/*")
	var files []string
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil {
			files = append(files, string(data))
		}
	}
	if len(files) < 5 {
		t.Fatalf("found %d files", len(files))
	}
	for _, p := range []map[string]string{
		{"preset": "resnet50"},
		{"preset": "clip"},
		{"preset": "vit"},
		{"preset": "resnet50_keras"},
		{"width": "31", "height": "57", "fit": "letterbox", "dtype": "fp16", "color": "gray"},
		{"width": "64", "height": "32", "jpeg_scale": "auto", "resize": "area", "orientation": "ignore", "alpha": "composite"},
	} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			a := gpu.Step(t, image.NewFactory(), &steptest.Case{Params: p, MaxBatch: 64})
			some := append([]string{"not an image"}, files[:min(len(files), 12)]...)
			a.Compare(0, len(some), steptest.Text([]int64{int64(len(some)), 1}, some...))
			a.Compare(0, 1, steptest.Text([]int64{1, 1}, files[len(files)-1]))
		})
	}
}
