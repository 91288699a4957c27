package image

// picture is a decoded image of 8-bit samples, read row by row. It is valid until
// the worker that decoded it takes the next file.
type picture interface {
	// Size is that of the picture as it is shown.
	Size() (width, height int)
	// Gray tells whether a pixel has one sample; else it has three, as RGB.
	Gray() bool
	// Row writes row y, from the top, into dst.
	Row(dst []byte, y int)
}

// packed is a picture that is in memory as a whole.
type packed struct {
	pix   []byte
	w, h  int
	gray  bool
	alpha []byte // One per pixel, or none where all is opaque.
	spare []byte // The memory of alpha, for the next picture.
	index []byte // Scratch of pictures that have a palette.
}

// reset gives the picture a size; its samples are unspecified.
func (p *packed) reset(w, h int, gray bool) {
	p.w, p.h, p.gray, p.alpha = w, h, gray, nil
	p.pix = resized(p.pix, w*h*p.channels())
}

// addAlpha makes room for transparency, its contents unspecified.
func (p *packed) addAlpha() {
	p.spare = resized(p.spare, p.w*p.h)
	p.alpha = p.spare
}

func (p *packed) channels() int {
	if p.gray {
		return 1
	}
	return 3
}

// Size is part of picture.
func (p *packed) Size() (width, height int) { return p.w, p.h }

// Gray is part of picture.
func (p *packed) Gray() bool { return p.gray }

// Row is part of picture.
func (p *packed) Row(dst []byte, y int) { copy(dst, p.row(y)) }

func (p *packed) row(y int) []byte {
	n := p.w * p.channels()
	return p.pix[y*n:][:n]
}

// turn makes p the picture src as an EXIF orientation of 2 to 8 wants it shown.
func (p *packed) turn(src picture, orientation uint8, line *[]byte) {
	w, h := src.Size()
	if orientation >= 5 {
		p.reset(h, w, src.Gray())
	} else {
		p.reset(w, h, src.Gray())
	}
	ch := p.channels()
	*line = resized(*line, w*ch)
	for y := range h {
		src.Row(*line, y)
		at, step := turned(orientation, w, h, y)
		if ch == 1 {
			for _, v := range *line {
				p.pix[at] = v
				at += step
			}
			continue
		}
		for s := *line; len(s) >= 3; s = s[3:] {
			d := p.pix[3*at : 3*at+3 : 3*at+3]
			d[0], d[1], d[2] = s[0], s[1], s[2]
			at += step
		}
	}
}

// turned says where the first pixel of row y goes, and how far apart the pixels of
// the row are from there on.
func turned(orientation uint8, w, h, y int) (first, step int) {
	switch orientation {
	case 2: // Mirrored.
		return y*w + w - 1, -1
	case 3: // Upside down.
		return (h-1-y)*w + w - 1, -1
	case 4: // Upside down and mirrored.
		return (h - 1 - y) * w, 1
	case 5: // Mirrored about the falling diagonal.
		return y, h
	case 6: // To be turned right.
		return h - 1 - y, h
	case 7: // Mirrored about the rising diagonal.
		return (w-1)*h + h - 1 - y, -h
	case 8: // To be turned left.
		return (w-1)*h + y, -h
	}
	return y * w, 1
}
