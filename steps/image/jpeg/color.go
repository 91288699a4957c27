package jpeg

import "github.com/tutti-server/tutti/steps/image/kernels"

// Size is that of the decoded picture.
func (d *Decoder) Size() (width, height int) { return d.outW, d.outH }

// Gray tells whether the picture has one component.
func (d *Decoder) Gray() bool { return d.n == 1 }

// Components is the number of components.
func (d *Decoder) Components() int { return d.n }

// Component gives row y of a component at full size, before colours are converted. It is
// valid until the next call for that component.
func (d *Decoder) Component(i, y int) []byte { return d.plane(i, y) }

// Row writes row y, from the top, into dst: one byte a pixel when Gray, else three
// as RGB. Four colours become RGB as by Pillow's convert("RGB").
func (d *Decoder) Row(dst []byte, y int) {
	switch {
	case d.n == 1:
		copy(dst, d.plane(0, y))
	case d.n == 3 && d.isRGB():
		merge(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
	case d.n == 3:
		kernels.Color(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
	case d.adobe >= 0 && d.adobe != 0: // YCCK, inverted: conversion gives what is left of white.
		kernels.Color(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
		for i, v := range dst[:3*d.outW] {
			dst[i] = 255 - v
		}
		blacken(dst, d.plane(3, y))
	default:
		merge(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
		blacken(dst, d.plane(3, y))
	}
}

// isRGB follows libjpeg's guess of the colours of three components.
func (d *Decoder) isRGB() bool {
	switch {
	case d.jfif:
		return false
	case d.adobe >= 0:
		return d.adobe == 0
	}
	return d.comps[0].id == 'R' && d.comps[1].id == 'G' && d.comps[2].id == 'B'
}

func merge(dst, a, b, c []byte) {
	b, c, dst = b[:len(a)], c[:len(a)], dst[:3*len(a)]
	for i, v := range a {
		p := dst[3*i : 3*i+3 : 3*i+3]
		p[0], p[1], p[2] = v, b[i], c[i]
	}
}

// blacken lays black over three inks, all of them stored as what is left of white,
// as Pillow does.
func blacken(dst, black []byte) {
	for i, k := range black {
		white := int32(k)
		p := dst[3*i : 3*i+3 : 3*i+3]
		for j, v := range p {
			t := int32(255-v)*white + 128
			p[j] = byte(max(white-(t>>8+t)>>8, 0))
		}
	}
}
