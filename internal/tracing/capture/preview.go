package capture

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // for image.Decode
	"image/png"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Bounds of a preview.
const (
	maxValues  = 64
	maxText    = 1 << 10
	maxTop     = 5
	maxCounted = 1 << 20
	maxImages  = 16
)

// preview returns the preview of a tensor's content. It counts images down to 0, from where there are none.
func preview(x *capturedTensor, images *int) *inspect.PreviewView {
	if *images > 0 {
		if v := imagePreview(x); v != nil {
			*images--
			return v
		}
	}
	if x.dtype == tensor.Bytes {
		return textPreview(x)
	}
	return numberPreview(x)
}

func textPreview(x *capturedTensor) *inspect.PreviewView {
	v := &inspect.PreviewView{Kind: "text", Values: []string{}}
	b, count := x.data, int64(0)
	for len(b) > 0 {
		elem, rest, ok := tensor.NextBytes(b)
		if !ok {
			break
		}
		if b = rest; count < maxValues {
			v.Values = append(v.Values, printable(elem))
		}
		count++
	}
	v.More = count - int64(len(v.Values))
	return v
}

// printable returns an element as text. An element with control characters is quoted.
func printable(elem []byte) string {
	cut := elem[:min(len(elem), maxText)]
	text := strings.ToValidUTF8(string(cut), "\uFFFD")
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }) {
		text = strconv.QuoteToASCII(string(cut))
	}
	if len(cut) < len(elem) {
		text += "…"
	}
	return text
}

// numberPreview returns the preview of a numeric tensor: the first values, and statistics of all.
func numberPreview(x *capturedTensor) *inspect.PreviewView {
	v := &inspect.PreviewView{Kind: "numbers", Values: []string{}}
	size := x.dtype.Size()
	if size == 0 {
		return v
	}
	total := len(x.data) / size
	for i := range min(total, maxValues) {
		v.Values = append(v.Values, valueText(x, i))
	}
	v.More = int64(total - len(v.Values))
	low, high, sum, finite := math.Inf(1), math.Inf(-1), 0.0, 0
	seen := min(total, maxCounted)
	for i := range seen {
		f := valueOf(x, i)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		low, high = min(low, f), max(high, f)
		sum += f
		finite++
	}
	v.Odd = int64(seen - finite)
	if finite > 0 {
		v.Min, v.Max, v.Mean = fmt.Sprintf("%.7g", low), fmt.Sprintf("%.7g", high), fmt.Sprintf("%.7g", sum/float64(finite))
	}
	if rank := x.shape.Rank(); rank > 0 && x.dtype.Size() > 1 {
		v.Top = top(x, min(int64(seen), x.shape.Dim(rank-1)))
	}
	return v
}

func top(x *capturedTensor, n int64) (list []inspect.TopView) {
	if n < 2 {
		return nil
	}
	var best []int
	for i := range int(n) {
		f := valueOf(x, i)
		if math.IsNaN(f) || len(best) == maxTop && f <= valueOf(x, best[maxTop-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, f, func(j int, f float64) int {
			if valueOf(x, j) == f {
				return -1 // the first one stays first
			}
			return cmp.Compare(f, valueOf(x, j))
		})
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), maxTop)]
	}
	for _, i := range best {
		list = append(list, inspect.TopView{Index: i, Value: valueText(x, i)})
	}
	return list
}

// valueOf returns number i; numbers of 64 bits may lose precision.
func valueOf(x *capturedTensor, i int) float64 {
	b := x.data[i*x.dtype.Size():]
	switch x.dtype { //nolint:exhaustive // the others are whole
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	n, signed := tracing.Integer(x.dtype, b)
	if signed {
		return float64(int64(n)) //nolint:gosec // it was one
	}
	return float64(n)
}

func valueText(x *capturedTensor, i int) string {
	b := x.data[i*x.dtype.Size():]
	switch x.dtype { //nolint:exhaustive // the others are as in trace files
	case tensor.Bool:
		return strconv.FormatBool(b[0] != 0)
	case tensor.FP16, tensor.BF16:
		return strconv.FormatFloat(valueOf(x, i), 'g', -1, 32)
	}
	return string(tracing.AppendElement(nil, x.dtype, b))
}

// Limits of previewed images.
const (
	maxSide   = 256      // the longer side of a thumbnail
	minSide   = 8        // the shortest side of a tensor that is shown as an image
	maxPixels = 16 << 20 // bounds the images that are decoded
)

// imagePreview returns the preview of a tensor that is an image, nil for any other: UINT8 rows, columns and
// channels, or BYTES with an image file.
func imagePreview(x *capturedTensor) *inspect.PreviewView {
	switch x.dtype { //nolint:exhaustive // others are no images
	case tensor.Bytes:
		if elem, _, ok := tensor.NextBytes(x.data); ok {
			return thumbnail(decoded(elem))
		}
	case tensor.Uint8:
		if img := pixels(x); img != nil {
			return thumbnail(img)
		}
		if x.shape.Rank() <= 2 {
			return thumbnail(decoded(x.data))
		}
	}
	return nil
}

// decoded returns the image of a JPEG or PNG file, nil for anything else and for one that is too large.
func decoded(b []byte) image.Image {
	c, format, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil || format != "jpeg" && format != "png" || !validSize(c.Width, c.Height) {
		return nil
	}
	img, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	return img
}

func validSize(width, height int) bool {
	return width > 0 && height > 0 && width <= maxPixels && height <= maxPixels/width
}

// pixels returns the first image of a tensor [..., rows, columns, channels], nil when the shape is not an image's.
func pixels(x *capturedTensor) image.Image {
	d := x.shape.Dims()
	if len(d) < 3 || len(d) > 4 {
		return nil
	}
	h, w, c := d[len(d)-3], d[len(d)-2], d[len(d)-1]
	if h < minSide || w < minSide || h > maxPixels || w > maxPixels || c != 1 && c != 3 && c != 4 || !validSize(int(w), int(h)) || int64(len(x.data)) < h*w*c {
		return nil
	}
	return &raster{w: int(w), h: int(h), c: int(c), pix: x.data}
}

// raster is the image of a UINT8 tensor.
type raster struct {
	w, h, c int
	pix     []byte
}

func (*raster) ColorModel() color.Model { return color.NRGBAModel }

func (r *raster) Bounds() image.Rectangle { return image.Rect(0, 0, r.w, r.h) }

func (r *raster) At(x, y int) color.Color {
	p := r.pix[(y*r.w+x)*r.c:]
	switch r.c {
	case 1:
		return color.Gray{Y: p[0]}
	case 3:
		return color.NRGBA{p[0], p[1], p[2], 0xff}
	}
	return color.NRGBA{p[0], p[1], p[2], p[3]}
}

func thumbnail(img image.Image) *inspect.PreviewView {
	if img == nil {
		return nil
	}
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	longer := max(w, h)
	side := min(longer, maxSide)
	small := image.NewNRGBA(image.Rect(0, 0, max(1, w*side/longer), max(1, h*side/longer)))
	sw, sh := small.Rect.Dx(), small.Rect.Dy()
	for y := range sh {
		for x := range sw {
			small.Set(x, y, img.At(b.Min.X+(2*x+1)*w/(2*sw), b.Min.Y+(2*y+1)*h/(2*sh)))
		}
	}
	var out bytes.Buffer
	if png.Encode(&out, small) != nil {
		return nil
	}
	return &inspect.PreviewView{Kind: "image", PNG: out.Bytes(), Width: w, Height: h}
}
