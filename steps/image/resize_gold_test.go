package image_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

// record is an image or a case of testdata/resize.gold.gz; make_resize_gold.py
// says what the fields mean.
type record struct {
	Image  string `json:"picture"`
	Shape  []int64
	Of     string
	Params map[string]string
	Stride int
	DType  string
	SHA256 string
	Atol   float64
	Boxes  [][]float32
	Bytes  int
	data   []byte
}

// readGold returns the images by name and the cases.
func readGold(t *testing.T) (images map[string]*record, cases []*record) {
	t.Helper()
	f, err := os.Open("testdata/resize.gold.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	images, r := map[string]*record{}, bufio.NewReader(z)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return images, cases
		}
		rec := new(record)
		if err := json.Unmarshal(line, rec); err != nil {
			t.Fatal(err)
		}
		rec.data = make([]byte, rec.Bytes)
		if _, err := io.ReadFull(r, rec.data); err != nil {
			t.Fatal(err)
		}
		if rec.Image != "" {
			images[rec.Image] = rec
		} else {
			cases = append(cases, rec)
		}
	}
}

// pixelBatch holds one request: an image of UINT8 samples, and boxes if there are
// any.
func pixelBatch(tb testing.TB, a tensor.Allocator, shape []int64, pix []byte, boxes [][]float32) *backends.Batch {
	tb.Helper()
	in, err := tensor.New(a, tensor.Uint8, tensor.Of(shape...).Prepend(1))
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), pix)
	b := &backends.Batch{
		Requests: []backends.Request{{Ctx: tb.Context(), Rows: 1}}, Rows: 1,
		In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 2), Allocator: a,
	}
	if boxes != nil {
		in, err := tensor.New(a, tensor.FP32, tensor.Of(1, int64(len(boxes)), 4))
		if err != nil {
			tb.Fatal(err)
		}
		for i, box := range boxes {
			copy(tensor.Slice[float32](&in)[4*i:], box)
		}
		b.In = append(b.In, in)
	}
	return b
}

func releaseAll(b *backends.Batch) {
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
}

// makeStep makes a step with the given parameters and nothing else.
func makeStep(tb testing.TB, f *steps.Factory, given map[string]string) steps.Step {
	tb.Helper()
	params, err := f.Resolve(given)
	if err != nil {
		tb.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "pre", MaxBatch: 8, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	return step
}

// TestResizeGold compares with Pillow, numpy and OpenCV.
func TestResizeGold(t *testing.T) {
	t.Parallel()
	images, cases := readGold(t)
	if len(cases) < 400 {
		t.Fatalf("%d cases", len(cases))
	}
	resize, crop := image.NewResizeFactory(), image.NewCropFactory()
	for _, c := range cases {
		t.Run(fmt.Sprint(c.Of, c.Params), func(t *testing.T) {
			t.Parallel()
			f := &resize
			if c.Boxes != nil {
				f = &crop
				c.Params["input"] = "pixels"
			}
			p := images[c.Of]
			b := pixelBatch(t, tensortest.NewChecked(t, nil), p.Shape, p.data, c.Boxes)
			defer releaseAll(b)
			if err := makeStep(t, f, c.Params).Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
				t.Fatal(err, b.Requests[0].Err)
			}
			compare(t, c, b.Out[0].Bytes())
		})
	}
}

// compare checks the elements that the gold file has, and the sum of all.
func compare(t *testing.T, c *record, got []byte) {
	t.Helper()
	size := map[string]int{"uint8": 1, "float16": 2, "float32": 4}[c.DType]
	var some []byte
	for i := 0; i < len(got); i += c.Stride * size {
		some = append(some, got[i:i+size]...)
	}
	if len(some) != len(c.data) {
		t.Fatalf("%d bytes, expected %d", len(some), len(c.data))
	}
	if sum := sha256.Sum256(got); c.SHA256 != "" && hex.EncodeToString(sum[:]) == c.SHA256 {
		return
	}
	wrong := 0
	for i := 0; i < len(some); i += size {
		if d := math.Abs(element(some[i:][:size]) - element(c.data[i:][:size])); d > c.Atol && !bytes.Equal(some[i:][:size], c.data[i:][:size]) {
			wrong++
			if wrong < 5 {
				t.Errorf("element %d is %v, expected %v", i/size*c.Stride, element(some[i:][:size]), element(c.data[i:][:size]))
			}
		}
	}
	if wrong > 0 || c.SHA256 != "" {
		t.Errorf("%d of %d elements differ, or others do", wrong, len(some)/size)
	}
}

func element(p []byte) float64 {
	switch len(p) {
	case 1:
		return float64(p[0])
	case 2:
		return float64(binary.LittleEndian.Uint16(p))
	default:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	}
}
