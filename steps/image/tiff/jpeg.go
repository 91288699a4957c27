package tiff

import (
	"bytes"
	"fmt"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/kernels"
)

// jpeg decodes a segment that is a JPEG file. Its tables may be in the directory.
func (d *Decoder) jpeg(h *Header, dst *canvas, i int, j *jpeg.Decoder) error {
	file, err := d.jpegFile(h, i, dst.rows)
	if err != nil {
		return err
	}
	j.MaxPixels = int64(h.segWidth) * int64(h.segHeight)
	if err := j.Decode(file, 1); err != nil {
		return err
	}
	if w, t := j.Size(); w != h.segWidth || t < dst.rows || j.Components() != h.samples {
		return fmt.Errorf("expected a JPEG of %d x %d pixels of %d samples as a strip or tile, found %d x %d of %d",
			h.segWidth, dst.rows, h.samples, w, t, j.Components())
	}
	for y := range dst.rows {
		if h.colors == colorYCbCr && h.samples == 3 {
			pix, _ := dst.place()
			w := len(pix) / 3
			kernels.Color(pix, j.Component(0, y)[:w], j.Component(1, y)[:w], j.Component(2, y)[:w])
			continue
		}
		for c := range h.samples {
			for x, v := range j.Component(c, y) {
				d.samples[x*h.samples+c] = v
			}
		}
		dst.put(d.samples)
	}
	return nil
}

var (
	jpegStart = []byte{0xff, 0xd8}
	jpegEnd   = []byte{0xff, 0xd9}
)

// jpegFile returns a segment with the tables of the directory before it.
func (d *Decoder) jpegFile(h *Header, i, rows int) ([]byte, error) {
	raw, err := h.segment(i, rows)
	if err != nil {
		return nil, err
	}
	tables := h.order.values(tagJPEGTables).data
	if !bytes.HasPrefix(tables, jpegStart) || !bytes.HasPrefix(raw, jpegStart) {
		return raw, nil
	}
	d.file = append(d.file[:0], bytes.TrimSuffix(tables, jpegEnd)...)
	d.file = append(d.file, raw[len(jpegStart):]...)
	return d.file, nil
}
