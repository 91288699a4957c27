package image

import (
	"fmt"

	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/turbojpeg"
)

// findTurbo opens libturbojpeg as the parameter wants it. With vectors the program's own
// decoder takes less than that library.
func (d *decoding) findTurbo(s *steps.Settings) error {
	want := s.Params["jpeg_decoder"]
	if want == "go" || want == "auto" && kernels.Fast() {
		return nil
	}
	lib, err := turbojpeg.Open()
	if err != nil {
		if want == "turbojpeg" {
			return fmt.Errorf("parameter 'jpeg_decoder' of model '%s' is 'turbojpeg', which cannot be opened: %w", s.Model, err)
		}
		return nil
	}
	d.turbo = lib
	return nil
}

// turboSuits tells whether libturbojpeg decodes to the pixels of Pillow here: it picks
// the scale by the size, which is ambiguous for the smallest, and gives four colours
// as ink.
func turboSuits(h header, scale int) bool {
	return h.colors != 4 && (scale == 1 || h.width >= 64 && h.height >= 64)
}

// decodeTurbo decodes a JPEG at 1/scale of its size.
func (p *packed) decodeTurbo(lib *turbojpeg.Library, data []byte, h header, scale int) error {
	p.reset((h.width+scale-1)/scale, (h.height+scale-1)/scale, h.colors == 1)
	return lib.Decode(p.pix, data, turbojpeg.Picture{Width: h.width, Height: h.height, OutWidth: p.w, OutHeight: p.h, Gray: p.gray})
}
