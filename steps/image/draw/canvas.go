package draw

import (
	"image"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// color is red, green and blue.
type color [3]byte

// colors are those of the classes, in turn. They are bright enough for black letters.
var colors = [...]color{
	{255, 96, 96},
	{96, 224, 96},
	{112, 160, 255},
	{255, 208, 64},
	{255, 128, 224},
	{64, 224, 224},
	{255, 160, 64},
	{192, 144, 255},
	{176, 224, 64},
	{224, 192, 160},
}

// canvas is an image to draw on.
type canvas struct {
	img  image.RGBA
	line []byte // the text of a box
}

// size sets the size. The pixels are unspecified.
func (c *canvas) size(w, h int) {
	c.img.Pix = raster.Sized(c.img.Pix, 4*w*h)
	c.img.Stride, c.img.Rect = 4*w, image.Rect(0, 0, w, h)
}

// row sets row y to RGB samples.
func (c *canvas) row(y int, rgb []byte) {
	dst := c.img.Pix[y*c.img.Stride:][:c.img.Stride]
	for len(dst) >= 4 && len(rgb) >= 3 {
		dst[0], dst[1], dst[2], dst[3] = rgb[0], rgb[1], rgb[2], 255
		dst, rgb = dst[4:], rgb[3:]
	}
}

// draw draws the boxes, the last one first, so that boxes with better scores are on top.
func (c *canvas) draw(o *options, labels [][]byte, f found) {
	small := min(c.img.Rect.Dx(), c.img.Rect.Dy())
	thick, text := o.thickness, o.text
	if thick == 0 {
		thick = max(small/240, 1)
	}
	if text == 0 {
		text = max(small/480, 1)
	}
	for i, class := range slices.Backward(f.classes) {
		r, ok := c.rectangle(f.boxes[4*i:][:4])
		if ok && class >= 0 {
			color := colors[int(class)%len(colors)]
			c.outline(r, thick, color)
			c.caption(labels, class, f.scores[i])
			c.write(r, text, color)
		}
	}
}

// rectangle rounds a box to pixels. ok is false if it is not a box in the image.
func (c *canvas) rectangle(b []float32) (r image.Rectangle, ok bool) {
	w, h := float64(c.img.Rect.Dx()), float64(c.img.Rect.Dy())
	for _, v := range b {
		if v-v != 0 {
			return r, false
		}
	}
	x0, y0, x1, y1 := float64(b[0]), float64(b[1]), float64(b[2]), float64(b[3])
	if x0 > x1 || y0 > y1 || x1 <= 0 || y1 <= 0 || x0 >= w || y0 >= h {
		return r, false
	}
	// edges outside of the image stay so far outside that their lines are not visible
	at := func(v, most float64) int { return int(math.Round(min(max(v, -1000), most+1000))) }
	return image.Rect(at(x0, w), at(y0, h), at(x1, w), at(y1, h)), true
}

// outline draws the edges of a rectangle within it.
func (c *canvas) outline(r image.Rectangle, thick int, to color) {
	c.fill(image.Rect(r.Min.X, r.Min.Y, r.Max.X, min(r.Min.Y+thick, r.Max.Y)), to)
	c.fill(image.Rect(r.Min.X, max(r.Max.Y-thick, r.Min.Y), r.Max.X, r.Max.Y), to)
	c.fill(image.Rect(r.Min.X, r.Min.Y, min(r.Min.X+thick, r.Max.X), r.Max.Y), to)
	c.fill(image.Rect(max(r.Max.X-thick, r.Min.X), r.Min.Y, r.Max.X, r.Max.Y), to)
}

// fill paints a rectangle.
func (c *canvas) fill(r image.Rectangle, to color) {
	r = r.Intersect(c.img.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		line := c.img.Pix[y*c.img.Stride+4*r.Min.X : y*c.img.Stride+4*r.Max.X]
		for ; len(line) >= 4; line = line[4:] {
			line[0], line[1], line[2] = to[0], to[1], to[2]
		}
	}
}

// caption sets the text of a box, for example "dog 0.87". Without a label it has the class.
func (c *canvas) caption(labels [][]byte, class int32, score float32) {
	c.line = c.line[:0]
	if int(class) < len(labels) {
		label, _, _ := tensor.NextBytes(labels[class])
		c.line = append(c.line, label...)
	} else {
		c.line = strconv.AppendInt(c.line, int64(class), 10)
	}
	c.line = strconv.AppendFloat(append(c.line, ' '), float64(score), 'f', 2, 32)
}

// write draws the text above the box, or inside where there is no room.
func (c *canvas) write(r image.Rectangle, scale int, back color) {
	face := basicfont.Face7x13
	high := (face.Ascent + face.Descent) * scale
	x, y := max(r.Min.X, 0), r.Min.Y-high
	if y < 0 {
		y = max(r.Min.Y, 0)
	}
	c.fill(image.Rect(x, y, x+utf8.RuneCount(c.line)*face.Advance*scale+scale, y+high), back)
	x += scale
	for rest := c.line; len(rest) > 0 && x < c.img.Rect.Max.X; x += face.Advance * scale {
		letter, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		c.letter(letter, x, y, scale)
	}
}

// letter draws one letter in black.
func (c *canvas) letter(letter rune, x, y, scale int) {
	face := basicfont.Face7x13
	area, mask, at, _, ok := face.Glyph(fixed.P(0, face.Ascent), letter)
	alpha, known := mask.(*image.Alpha)
	if !ok || !known {
		return
	}
	for v := range area.Dy() {
		for u := range area.Dx() {
			if alpha.AlphaAt(at.X+u, at.Y+v).A != 0 {
				left, top := x+(area.Min.X+u)*scale, y+(area.Min.Y+v)*scale
				c.fill(image.Rect(left, top, left+scale, top+scale), color{})
			}
		}
	}
}
